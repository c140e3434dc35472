use lbr_msr::record::{Comm, Task};

use super::*;

/// Of two names from the same time on, the later in the file counts.
#[test]
fn the_last_of_two_names_counts() {
    let mut comms = Comms::default();
    for name in ["first", "second"] {
        let comm = name.to_owned();
        comms.event(&Event::Comm(Comm { pid: 7, tid: 7, time: 5, comm, exec: false }));
    }
    let found = [4, 5, 6].map(|time| comms.at(7, Some(time)));
    assert_eq!(found, [None, Some("second"), Some("second")]);
    // A stream may have an earlier name later.
    let comm = "earlier".to_owned();
    comms.event(&Event::Comm(Comm { pid: 7, tid: 7, time: 3, comm, exec: false }));
    let found = [2, 3, 5].map(|time| comms.at(7, Some(time)));
    assert_eq!(found, [None, Some("earlier"), Some("second")]);
}

/// Dropped changes are counted, for a file read twice and for a stream.
#[test]
fn changes_beyond_the_most_are_counted() {
    let comm = |time| {
        let comm = "name".to_owned();
        Event::Comm(Comm { pid: 7, tid: 7, time, comm, exec: false })
    };
    let mut comms = Comms::default();
    (0..Comms::MOST as u64 + 3).for_each(|time| comms.event(&comm(time)));
    // This is not a change.
    comms.event(&Event::Exit(Task { time: 0, pid: 7, tid: 7, ppid: 1, ptid: 1 }));
    assert_eq!(comms.unkept, 3);
    assert_eq!(Comms::of(vec![comm(1)], 5).unkept, 5);
}
