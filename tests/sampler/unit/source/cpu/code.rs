use lbr_msr::record::BranchEntry;

use super::*;

#[test]
fn involuntary_switches_of_one_thread() {
    let status =
        b"Name:\tx\nThreads:\t1\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t42\n";
    assert_eq!(involuntary(status), Some(42));
    let two = b"Threads:\t2\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t42\n";
    assert_eq!(involuntary(two), None, "threads switch among themselves");
    assert_eq!(involuntary(b"Threads:\t1\n"), None);
    assert_eq!(involuntary(b""), None);
}

/// A target with code from 0x1000 to this address; another look finds more.
struct Known(u64);

impl UserCode for Known {
    fn look(&mut self, _: u64) -> Vec<Event> {
        self.0 = 0x3000;
        Vec::new()
    }

    fn owns(&self, address: u64) -> bool {
        (0x1000..self.0).contains(&address)
    }
}

#[test]
fn both_ends_of_a_branch_are_the_targets_or_the_kernels() {
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    for (branches, is_owned) in [
        (&[(0x1000, 0x1008)][..], true),
        (&[(0x1000, 0x1008), (0x9000, 0x1000)], false),
        (&[(0x1000, 0x9000)], false),
        (&[(KERNEL, 0x1000), (0x1000, KERNEL)], true),
        (&[(KERNEL, 0x9000)], false),
        (&[(0x1000, 0x2008), (0x2000, 0x1000)], true),
        (&[], true),
    ] {
        let mut owns = owns(Box::new(Known(0x2000)));
        let entry = |&(from, to)| BranchEntry { from, to, ..BranchEntry::default() };
        let entries: Vec<BranchEntry> = branches.iter().map(entry).collect();
        assert_eq!(owns(5, &entries, &mut Vec::new()), is_owned, "{branches:x?}");
    }
}

/// RET and NOP, in memory that this process can read.
static CODE: [u8; 32] = {
    let mut code = [0x90; 32];
    code[0] = 0xc3;
    code
};

#[test]
fn types_are_those_of_the_process_and_not_of_the_kernel() {
    let mut classify = classifier();
    let (pid, code) = (std::process::id(), CODE.as_ptr() as u64);
    assert_eq!(classify(pid, code), Some(BranchType::RET));
    assert_eq!(classify(pid, code + 1), None, "no branch");
    assert_eq!(classify(pid, code | 1 << 63), None);
}

#[test]
fn switches_are_those_since_the_last_look() {
    let file = tempfile::tempfile().expect("a file");
    let status = Some(file.try_clone().expect("its copy"));
    let mut switches = ProcessSwitches { status, before: None };
    for (threads, count, wanted) in [
        (1, 5, None),
        (1, 9, Some(4)),
        (1, 9, Some(0)),
        // While there were two threads, the count meant nothing.
        (2, 20, None),
        (1, 25, None),
        (1, 26, Some(1)),
    ] {
        let text = format!("Threads:\t{threads}\nnonvoluntary_ctxt_switches:\t{count:<5}\n");
        file.write_all_at(text.as_bytes(), 0).expect("written");
        assert_eq!(switches.since_last(), wanted, "{threads} {count}");
    }
}

#[test]
fn lbrs_own_code_is_recognised_and_announced_once() {
    let pid = std::process::id();
    let mut code = ProcessCode::new(ThreadId { pid, tid: pid });
    let here = lbrs_own_code_is_recognised_and_announced_once as fn() as usize as u64;
    assert!(!code.owns(here), "no look yet");
    let events = code.look(5);
    assert!(code.owns(here) && !code.owns(0x1000));
    let holds = |event: &Event| match event {
        Event::Mmap(map) => map.time == 5 && (map.addr..map.addr + map.len).contains(&here),
        _ => false,
    };
    assert!(events.iter().any(holds), "{events:?}");
    let is_users = |event: &Event| matches!(event, Event::Mmap(map) if map.addr >> 63 == 0);
    assert!(events.iter().all(is_users), "the vsyscall page is every process's: {events:?}");
    assert!(code.look(6).is_empty());
}
