use lab::learn::LESSONS;

use super::*;
use crate::commands::learn::Subject;
use crate::present::terminal::Key;

fn play() -> Play {
    let subjects = LESSONS.iter().copied().filter_map(|lesson| Subject::of(lesson, None).ok());
    Play::new(subjects.collect(), 0)
}

fn shown(play: &Play, size: (usize, usize)) -> String {
    let line = |row: &Row| row.iter().map(|(_, text)| text.as_str()).collect::<String>() + "\n";
    draw(play, size).iter().map(line).collect()
}

/// For any keys and terminal size, every line fits, and the keys stay visible.
#[test]
fn every_screen_fits() {
    const KEYS: &str = "s tsrbbCts\tt0sceppra1\n\nssbnc srtbNnn";
    for size in [(80, 24), (200, 50), (40, 12), (120, 40), (1, 1)] {
        let mut play = play();
        for (at, c) in KEYS.chars().cycle().take(400).enumerate() {
            let key = match at % 37 {
                11 => Key::Down,
                12 => Key::PageDown,
                13 => Key::Up,
                29 => Key::BackTab,
                31 => Key::Esc,
                _ if c == '\n' => Key::Enter,
                _ if c == '\t' => Key::Tab,
                _ => Key::Char(c),
            };
            assert!(play.press(key));
            let rows = draw(&play, size);
            assert_eq!(rows.len(), size.1, "{size:?}");
            for row in rows {
                let used: usize = row.iter().map(|(_, text)| cells(text)).sum();
                assert!(used <= size.0, "{size:?}: {row:?}");
            }
        }
    }
}

/// At 80 columns no source line is cut.
#[test]
fn every_source_line_fits() {
    for at in 0..LESSONS.len() {
        let mut play = play();
        (0..at).for_each(|_| assert!(play.press(Key::Char('n'))));
        assert!(play.press(Key::Char(' ')));
        let program = &play.subject().session.trace().program;
        let screen = shown(&play, (80, 100));
        for line in &program.lines {
            assert!(screen.contains(line.source.trim()), "{}: {screen}", line.source);
        }
    }
}

/// Checked by hand: `taken` after its first record, at 80 columns.
#[test]
fn a_record_is_marked_where_it_is_new() {
    let mut play = play();
    for c in " sssssss".chars() {
        assert!(play.press(Key::Char(c)));
    }
    let screen = shown(&play, (80, 24));
    assert!(screen.contains(">* 1 again -> next  MISPRED"), "{screen}");
    assert!(screen.contains("MSR_LASTBRANCH_TOS 0x1c9=0x1"), "{screen}");
    // Slot 1 is left of the middle of a ring with 13 slots at the top.
    assert!(screen.contains("○ ● ○ ○") && screen.contains("← TOS 1"), "{screen}");
    assert!(screen.contains("<1>LBR"), "{screen}");
    assert!(screen.contains("jne next: taken, recorded in slot 1"), "{screen}");
    assert!(play.press(Key::Char('b')));
    assert!(!shown(&play, (80, 24)).contains("again -> next"), "{screen}");
    // Toggled, and the ring stays as it is.
    assert!(play.press(Key::Char('t')) && play.press(Key::Char('s')));
    let off = shown(&play, (80, 24));
    assert!(off.contains("<0>LBR") && off.contains("recording is off"), "{off}");
}
