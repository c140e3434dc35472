use super::*;

/// Lines by sources, targets and lane.
fn arrows(lines: &[(&[usize], &[usize], usize)]) -> Arrows {
    let line = |(from, to, lane): &(&[usize], &[usize], usize)| {
        let mut line = ArrowLine { lane: *lane, ..ArrowLine::at(from[0]) };
        from.iter().for_each(|from| to.iter().for_each(|to| line.add(*from, *to)));
        line
    };
    let lanes = lines.iter().map(|line| line.2 + 1).max().unwrap_or(0);
    Arrows { lines: lines.iter().map(line).collect(), lanes, omitted: 0 }
}

/// A textbook loop: a short jump forward inside a long one back.
#[test]
fn nested() {
    let arrows = arrows(&[(&[2], &[6], 0), (&[10], &[0], 1)]);
    let rows: Vec<String> = (0..11).map(|row| arrows.row(row)).collect();
    let wanted = [
        "┌───>",
        "│    ",
        "│ ┌──",
        "│ │  ",
        "│ │  ",
        "│ │  ",
        "│ └─>",
        "│    ",
        "│    ",
        "│    ",
        "└────",
    ];
    assert_eq!(rows, wanted);
    assert_eq!((arrows.above(0), arrows.above(3)), ("     ".to_owned(), "│ │  ".to_owned()));
}

/// Two jumps to one target share a line, a switch leaves from one row, and a jump to itself has
/// a separate row.
#[test]
fn shared() {
    let one = arrows(&[(&[0, 1], &[3], 0)]);
    let rows: Vec<String> = (0..4).map(|row| one.row(row)).collect();
    assert_eq!(rows, ["┌──", "├──", "│  ", "└─>"]);
    let switch = arrows(&[(&[1], &[0, 2, 3], 0)]);
    let rows: Vec<String> = (0..4).map(|row| switch.row(row)).collect();
    assert_eq!(rows, ["┌─>", "├──", "├─>", "└─>"]);
    assert_eq!(arrows(&[(&[1], &[1], 0)]).row(1), "──>");
}
