use super::*;

const OPEN: u64 = 0x1F00;
const CODE: u64 = 0x2000;
const CLOSE: u64 = 0x2080;

fn layout() -> Layout {
    Layout {
        mapping: 0x1000..0x9000,
        text: 0x1800..0x3000,
        init: 0x1900..0x1900,
        set_up: CODE..CODE,
        open: OPEN,
        code: CODE..CLOSE,
        copy: CLOSE - CODE,
        close: CLOSE,
        tail: 0x20C0,
        home: 0x2F00,
        ..Layout::default()
    }
}

fn record(from: u64, to: u64) -> BranchEntry {
    BranchEntry { from, to, cycles: Some(7), ..BranchEntry::default() }
}

/// Extracts from records in order of time, oldest first.
fn cut_of(records: &[BranchEntry]) -> Cut {
    let records: Vec<BranchEntry> = records.iter().rev().copied().collect();
    cut(&records, &layout(), |at| at == CODE + 0x12)
}

const KERNEL: u64 = 0xFFFF_8000_0000_1000;

#[test]
fn a_run_is_the_branches_between_the_two_jumps() {
    let records = [
        record(0x1, 0x2),
        // The return from the system call that switched recording on.
        record(KERNEL, 0x1E80),
        record(OPEN, CODE),
        record(CODE + 8, CODE + 2),
        record(CLOSE, 0x20C0),
    ];
    let Cut::Run(run) = cut_of(&records) else { panic!("a run") };
    assert!(run.complete);
    let from: Vec<u64> = run.taken.iter().map(|taken| taken.from).collect();
    assert_eq!(from, [CODE + 8, CLOSE]);
    assert_eq!(total(&run), (Some(14), false));
    // The opening jump was overwritten.
    let Cut::Run(run) = cut_of(&records[3..]) else { panic!("a run") };
    assert!(!run.complete);
    assert_eq!(total(&run), (None, false));
}

#[test]
fn a_far_branch_between_them_is_an_interrupt() {
    let around = |between| [record(OPEN, CODE), between, record(CLOSE, 0x20C0)];
    assert!(matches!(cut_of(&around(record(KERNEL, CODE + 9))), Cut::Interrupted));
    // A CPU that types its records may hide the source address.
    let typed = BranchEntry { hw_type: Some(HwBranchType::Other), ..record(CODE, CODE + 9) };
    assert!(matches!(cut_of(&around(typed)), Cut::Interrupted));
    // The code's own system call.
    assert!(matches!(cut_of(&around(record(KERNEL, CODE + 0x12))), Cut::Run(_)));
    // Before the opening jump it does not matter.
    let before = [record(KERNEL, CODE), record(OPEN, CODE), record(CLOSE, 0x20C0)];
    assert!(matches!(cut_of(&before), Cut::Run(_)));
}

/// A stack sampled during a third run that reaches back into a first.
#[test]
fn a_stack_of_several_runs() {
    let records = [
        record(CODE + 8, CODE + 2),
        record(CLOSE, 0x20C0),
        record(0x2F10, 0x1880),
        record(OPEN, CODE),
        record(KERNEL, CODE + 9),
        record(CLOSE, 0x20C0),
        record(OPEN, CODE),
        record(CODE + 8, CODE + 2),
    ];
    let stack: Vec<BranchEntry> = records.iter().rev().copied().collect();
    let found = runs(&stack, &layout(), |at| at == CODE + 0x12);
    let found: Vec<(bool, Vec<u64>)> = found
        .iter()
        .map(|run| (run.complete, run.taken.iter().map(|taken| taken.from).collect()))
        .collect();
    assert_eq!(found, [(false, vec![CODE + 8, CLOSE]), (true, vec![CODE + 8])]);
}

#[test]
fn inconsistent_records_are_not_a_run() {
    assert!(matches!(cut_of(&[]), Cut::Unreadable));
    assert!(matches!(cut_of(&[record(OPEN, CODE)]), Cut::Unreadable), "frozen in between");
    let two = [record(CLOSE, 0x20C0), record(CODE + 8, CODE), record(CLOSE, 0x20C0)];
    assert!(matches!(cut_of(&two), Cut::Unreadable));
    let wrong = BranchEntry { spec: Some(BranchSpec::WrongPath), ..record(KERNEL, CODE) };
    let speculated = [record(OPEN, CODE), wrong, record(CLOSE, 0x20C0)];
    let Cut::Run(run) = cut_of(&speculated) else { panic!("a run") };
    assert_eq!(run.taken.len(), 1, "speculative records are dropped");
}
