//! The course: the behaviour of its programs, the contents of its rings, and stepping back to
//! earlier states. Answers are worked out by hand.

use std::sync::Arc;

use lab::learn::{Answer, Did, LESSONS, Lesson, Session, Setup, Trace, View, run};
use lbr_msr::soft::{Faults, SoftCpu};
use sampler::source::Command;

use crate::support::skip::{skipped, tool};

fn lesson(name: &str) -> &'static Lesson {
    LESSONS.iter().find(|lesson| lesson.name == name).unwrap()
}

fn session(name: &str) -> Session {
    Session::of(lesson(name)).unwrap()
}

/// The address of a label plus an offset.
fn place(session: &Session, name: &str, behind: u64) -> u64 {
    session.trace().program.address_of(name).unwrap() + behind
}

/// A label in a user's program may already contain an offset from a symbol.
#[test]
fn labels_that_are_offsets() {
    let mut program = session("taken").trace().program.clone();
    program.lines.iter_mut().for_each(|line| line.label.clear());
    let at = program.lines[0].address;
    let labels = [("work", "work+0x2"), ("work+0x2f", "work+0x31"), ("a+b", "a+b+0x2")];
    for (label, name) in labels {
        program.lines[0].label = label.to_owned();
        assert_eq!(program.name(at).as_deref(), Some(label));
        assert_eq!(program.name(at + 2).as_deref(), Some(name));
    }
}

/// Counted by hand, lesson by lesson.
#[test]
fn answers_match_counts_by_hand() {
    use Answer::{Address, Number};
    let wanted: &[(&str, &[Answer])] = &[
        ("taken", &[Number(1), Number(3)]),
        ("wrap", &[Number(16), Number(0), Address(place(&session("wrap"), "again", 0))]),
        // The jump comes after two calls of five bytes.
        ("tos", &[Number(5), Address(0x40_100A)]),
        ("filters", &[8, 3, 10, 9, 10, 8, 10, 10, 9].map(Number)),
        ("callstack", &[Number(2), Number(0), Number(1)]),
        ("predict", &[Number(3), Number(4), Number(17)]),
        ("tsx", &[Number(1), Number(6)]),
        ("arch", &[Number(0), Number(0), Number(6)]),
        ("amd", &[Number(3), Number(0)]),
        ("brbe", &[Number(5), Number(0), Answer::Nothing]),
        ("msr", &[Number(16), Number(4), Number(0)]),
        ("nehalem", &[Number(8), Number(6)]),
        ("double-abort", &[Number(2)]),
        (
            "am94",
            &[
                Address(place(&session("am94"), "b", 0)),
                Address(place(&session("am94"), "last", 0)),
            ],
        ),
        ("bu10", &[Address(0x3_8000)]),
    ];
    assert_eq!(wanted.len(), LESSONS.len());
    for (name, answers) in wanted {
        let lesson = lesson(name);
        let found: Vec<Answer> =
            lesson.questions.iter().map(|question| question.answer(lesson)).collect();
        assert_eq!(found, *answers, "{name}");
    }
}

/// As assembled by GNU as.
#[test]
fn aarch64_is_assembled() {
    let code: [u32; 13] = [
        0x1000_0128,
        0xD63F_0100,
        0xD280_0061,
        0xF100_0421,
        0x54FF_FFE1,
        0x1400_0002,
        0xD503_201F,
        0xD400_0001,
        0xD65F_03C0,
        0xD65F_03C0,
        0x9400_0002,
        0xD69F_03E0,
        0xD65F_03C0,
    ];
    let session = session("brbe");
    let lines = &session.trace().program.lines;
    let words = lines.iter().map(|line| u32::from_le_bytes(line.bytes[..].try_into().unwrap()));
    assert_eq!(words.collect::<Vec<_>>(), code);
}

/// The bits that questions toggle exist, and the names of lessons can be typed.
#[test]
fn lessons_are_sound() {
    for lesson in LESSONS {
        let session = session(lesson.name);
        assert!(!session.trace().steps.is_empty(), "{}", lesson.name);
        assert!(session.trace().steps.len() < 200, "{}", lesson.name);
        assert!(!lesson.text.is_empty() && !lesson.questions.is_empty(), "{}", lesson.name);
        for name in lesson.questions.iter().flat_map(|question| question.toggle) {
            session.clone().toggle_named(name).unwrap();
        }
        for line in &session.trace().program.lines {
            assert!(!line.text.contains("(bad)"), "{}: {}", lesson.name, line.text);
        }
    }
}

/// All of a state, including hidden parts.
fn whole(session: &Session) -> String {
    format!("{:?} {:?}", View::of(session), session.state())
}

#[test]
fn back_leads_to_the_identical_state() {
    for lesson in LESSONS {
        let mut session = session(lesson.name);
        let mut states = vec![whole(&session)];
        let mut at = 0;
        loop {
            // Everything that changes a state, between steps.
            let done = match at % 7 {
                3 => {
                    let bits = View::of(&session).controls;
                    let (msr, mask) = (bits[0].msr, bits[0].fields[0].mask());
                    session.toggle(msr, mask).is_ok()
                }
                5 => {
                    let other = ["nehalem", "zen4", "golden-cove", "goldmont"][at % 4];
                    session.change_cpu(SoftCpu::preset(other).unwrap());
                    true
                }
                6 if session.toggle_erratum() => true,
                _ => session.step(),
            };
            if !done {
                break;
            }
            states.push(whole(&session));
            at += 1;
        }
        assert!(at > 3, "{}", lesson.name);
        while let Some(state) = states.pop() {
            assert!(whole(&session) == state, "{}: {}", lesson.name, states.len());
            assert_eq!(session.back(), !states.is_empty());
        }
    }
}

/// The eleven branches of `filters`, in order: a letter for its class (c
/// conditional, r relative call, i indirect call, t return, m indirect jump, j
/// relative jump, f far), and whether it ends in ring 0.
const ELEVEN: [(char, bool); 11] = [
    ('r', false),
    ('t', false),
    ('i', false),
    ('t', false),
    ('m', false),
    ('j', false),
    ('c', false),
    ('f', true),
    ('r', true),
    ('t', true),
    ('f', false),
];

/// Fact sheet 4.2, 5.2, 6.3: the branches that each bit controls. Upper case: as on Nehalem.
const SUPPRESS: [(&str, &str, &str); 9] = [
    ("CPL_EQ_0", "0", "0"),
    ("CPL_NEQ_0", "3", "3"),
    ("JCC", "c", "c"),
    ("NEAR_REL_CALL", "r", "r"),
    ("NEAR_IND_CALL", "i", "i"),
    ("NEAR_RET", "t", "t"),
    ("NEAR_IND_JMP", "m", "mit"),
    ("NEAR_REL_JMP", "j", "jr"),
    ("FAR_BRANCH", "f", "f"),
];
const CAPTURE: [(&str, &str); 9] = [
    ("OS", "0"),
    ("USR", "3"),
    ("COND", "c"),
    ("NEAR_REL_JMP", "j"),
    ("NEAR_IND_JMP", "m"),
    ("NEAR_REL_CALL", "r"),
    ("NEAR_IND_CALL", "i"),
    ("NEAR_RET", "t"),
    ("OTHER_BRANCH", "f"),
];

/// Each filter bit, toggled after each number of steps: later records follow the fact sheet, and
/// earlier ones remain.
#[test]
fn each_filter_bit_changes_what_comes_next() {
    let lesson = lesson("filters");
    for cpu in ["nehalem", "haswell", "skylake", "goldmont", "golden-cove", "zen4"] {
        let bits: Vec<(&str, &str)> = match cpu {
            "golden-cove" => CAPTURE.to_vec(),
            "nehalem" => SUPPRESS.iter().map(|(name, _, swallowed)| (*name, *swallowed)).collect(),
            _ => SUPPRESS.iter().map(|(name, alone, _)| (*name, *alone)).collect(),
        };
        let mut fresh = Session::of(lesson).unwrap();
        assert!(fresh.change_cpu(SoftCpu::preset(cpu).unwrap()).is_none());
        for (name, taken_out) in bits {
            for before in 0..fresh.trace().steps.len() {
                let mut session = fresh.clone();
                (0..before).for_each(|_| assert!(session.step()));
                session.toggle_named(name).unwrap();
                while session.step() {}
                let branches: Vec<_> = session
                    .trace()
                    .steps
                    .iter()
                    .enumerate()
                    .filter_map(|(at, step)| match step.did {
                        Did::Branch(branch) => Some((at, branch.from, branch.to)),
                        _ => None,
                    })
                    .collect();
                assert_eq!(branches.len(), ELEVEN.len());
                let wanted: Vec<(u64, u64)> = branches
                    .iter()
                    .zip(ELEVEN)
                    .filter(|((at, ..), (class, kernel))| {
                        let ring = if *kernel { '0' } else { '3' };
                        *at < before || !taken_out.contains([*class, ring])
                    })
                    // On Architectural LBR, a FROM in a ring that is not recorded is hidden.
                    .map(|((at, from, to), _)| {
                        let kernel = from >> 63 != 0;
                        let hides = (name == "OS" && kernel) || (name == "USR" && !kernel);
                        (if hides && *at >= before { !0 } else { *from }, *to)
                    })
                    .collect();
                let view = View::of(&session);
                let mut found: Vec<(u64, u64)> = view
                    .newest_first()
                    .filter_map(|slot| slot.entry.map(|entry| (entry.from, entry.to)))
                    .collect();
                found.reverse();
                assert_eq!(found, wanted, "{cpu} {name} after {before}");
            }
        }
    }
}

/// At most one record per step is marked.
#[test]
fn changes_are_marked() {
    for cpu in ["skylake", "zen4", "golden-cove"] {
        let mut session = session("tos");
        session.change_cpu(SoftCpu::preset(cpu).unwrap());
        while session.step() {
            let changed: Vec<u32> = View::of(&session)
                .slots
                .iter()
                .filter(|slot| slot.changed)
                .map(|slot| slot.index)
                .collect();
            let branches = session.trace().steps[..session.state().done]
                .iter()
                .filter(|step| matches!(step.did, Did::Branch(_)))
                .count() as u32;
            let branched = matches!(session.last().unwrap().did, Did::Branch(_));
            let slot = if cpu == "skylake" { branches } else { 0 };
            assert_eq!(changed, if branched { vec![slot] } else { vec![] }, "{cpu}");
        }
    }
}

/// The lessons' machine code behaves on a CPU as described; between the marks, only the results of
/// instructions matter.
#[test]
fn single_stepped_programs_match_the_simulation() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["taken", "wrap", "tos", "callstack", "predict", "arch", "amd"] {
        let paper = session(name);
        let source = folder.path().join(format!("{name}.S"));
        let mut text = ".globl _start\n.text\nmain: ".to_owned();
        for line in &paper.trace().program.lines {
            let bytes: Vec<String> = line.bytes.iter().map(u8::to_string).collect();
            text += &format!(".byte {}\n", bytes.join(","));
        }
        text += "_start: call main\nmov $60,%eax\nxor %edi,%edi\nsyscall\n\
                 .section .note.GNU-stack,\"\",@progbits\n";
        std::fs::write(&source, text).unwrap();
        let program = folder.path().join(name);
        let built = tool("cc")
            .args(["-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x401000", "-o"])
            .args([&program, &source])
            .output();
        if !built.is_ok_and(|built: std::process::Output| built.status.success()) {
            return skipped("no C compiler (cc)");
        }
        let command = Command {
            program: program.to_str().unwrap().to_owned(),
            from: Some(0x40_1000),
            ..Command::default()
        };
        let own = match run(command, 1000) {
            Ok(own) => own,
            Err(error) => return skipped(error),
        };
        assert!(!own.cut);
        let steps = paper.trace().steps.len();
        assert!(own.trace.steps.len() >= steps, "{name}");
        // Also the cycles and predictions of the model.
        assert_eq!(own.trace.steps[..steps], paper.trace().steps, "{name}");
    }
}

/// An endless program is ended.
#[test]
fn a_program_ends_at_the_limit_of_steps() {
    let command = Command {
        program: "sh".to_owned(),
        args: ["-c", "while :; do :; done"].map(str::to_owned).to_vec(),
        ..Command::default()
    };
    let own = match run(command, 500) {
        Ok(own) => own,
        Err(error) => return skipped(error),
    };
    assert!(own.cut && own.trace.steps.len() == 500);
    let trace = Arc::new(own.trace);
    let setup = Setup { filter: "any,u".parse().unwrap(), set: vec![], faults: Faults::NONE };
    let mut session =
        Session::new(Arc::clone(&trace), SoftCpu::preset("skylake").unwrap(), setup).unwrap();
    assert!(session.run() && !session.run());
    let taken =
        |trace: &Trace| trace.steps.iter().filter(|s| matches!(s.did, Did::Branch(_))).count();
    assert!(taken(&trace) > 10);
    let records = View::of(&session).slots.iter().filter(|slot| slot.entry.is_some()).count();
    assert!(records > 10);
}
