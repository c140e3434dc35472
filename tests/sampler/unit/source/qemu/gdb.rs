use super::*;

/// include/gdb/signals.def, and signal(7) for x86-64.
#[test]
fn signals_have_gdbs_numbers() {
    let of_linux = [7, 31, 23, 19, 20, 18, 17, 29, 10, 12, 30];
    let of_gdb = [10, 12, 16, 17, 18, 19, 20, 23, 30, 31, 32];
    assert_eq!(NUMBERS.to_vec(), of_gdb.into_iter().zip(of_linux).collect::<Vec<_>>());
}

/// The program's end of the connection, and the stub's.
fn connected() -> (Gdb, UnixStream) {
    let mut gdb = Gdb::new(None).expect("a folder");
    let (ours, stub) = UnixStream::pair().expect("a pair of sockets");
    gdb.stream = Some(ours);
    (gdb, stub)
}

fn sent(stub: &mut UnixStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stub.read_exact(&mut bytes).expect("sent");
    String::from_utf8(bytes).expect("ASCII")
}

/// GDB manual, appendix E: a checksum is the sum of the packet's characters, modulo 256;
/// registers are hexadecimal bytes in the order of memory. 0a is GDB's SIGBUS, 7 on Linux.
#[test]
fn a_stop_reply_is_a_signal_with_the_registers_of_its_thread() {
    let (mut gdb, mut stub) = connected();
    assert!(gdb.news(0).expect("open").is_none(), "nothing was sent");
    // RAX is 0x1122334455667788, the next ones count up, EFLAGS has 32 bits.
    let mut registers = "8877665544332211".to_owned();
    for n in 1..16 {
        registers += &format!("{n:02x}00000000000000");
    }
    registers += "f0debc9a00000000";
    registers += "46020000";
    registers += "33000000";
    stub.write_all(b"+$T0athr").expect("written");
    assert!(gdb.news(0).expect("open").is_none(), "a part of a packet");
    stub.write_all(format!("ead:p1f.2a;#00+${registers}#00").as_bytes()).expect("written");
    let Some(News::Signal(thread, stop)) = gdb.news(0).expect("open") else { panic!("no stop") };
    assert_eq!((thread, stop.signal, stop.ip), (0x2a, 7, 0x9abc_def0));
    let registers = stop.registers.expect("18 registers");
    assert_eq!((registers[0], registers[1], registers[15]), (0x1122_3344_5566_7788, 1, 15));
    assert_eq!((registers[16], registers[17]), (0x9abc_def0, 0x246));
    assert_eq!((stop.code, stop.address, stop.sender), (None, None, None), "not shown");
    assert_eq!(sent(&mut stub, 7), "+$g#67+");
    // 'C' is 0x43, '0' 0x30, 'a' 0x61.
    gdb.deliver(&stop).expect("open");
    assert_eq!(sent(&mut stub, 7), "$C0a#d4");
    // A signal whose number is the same.
    gdb.deliver(&SignalStop { signal: 11, ..*stop }).expect("open");
    assert_eq!(sent(&mut stub, 7), "$C0b#d5");
    stub.write_all(b"$X0b#ba$W00#b7").expect("written");
    assert!(matches!(gdb.news(0).expect("open"), Some(News::Died)));
    assert!(gdb.news(0).expect("open").is_none(), "it has exited");
    drop(stub);
    assert!(gdb.news(0).expect("closed").is_none());
    gdb.send("c").expect("QEMU has ended");
}

#[test]
fn its_folder_is_the_users_alone_and_removed() {
    use std::os::unix::fs::PermissionsExt;
    let gdb = Gdb::new(None).expect("a folder");
    let folder = gdb.folder.clone();
    let mode = std::fs::metadata(&folder).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(gdb.path().starts_with(&folder));
    drop(gdb);
    assert!(!folder.exists());
}

/// 0: NOP  1: JNE to 5  3: INT3  5: JMP to 0  7: SYSCALL  9: JMP RAX  11: UD2  13: JNE to 15
static CODE: [u8; 32] = {
    let code = [0x90, 0x75, 2, 0xcc, 0xcc, 0xeb, 0xf9, 0x0f, 5, 0xff, 0xe0, 0x0f, 0x0b, 0x75, 0];
    let mut room = [0x90; 32];
    let mut at = 0;
    while at < code.len() {
        room[at] = code[at];
        at += 1;
    }
    room
};

/// SDM Vol. 2, Jcc, JMP: a displacement counts from the next instruction.
#[test]
fn a_thread_left_its_block_by_the_branch_that_reaches_the_place() {
    let (pid, code) = (std::process::id(), CODE.as_ptr() as u64);
    for (start, ip, branch) in [
        (0, 0, None),
        (0, 1, None),
        (0, 5, Some((1, HwBranchType::Cond))),
        // Not taken.
        (0, 3, None),
        (0, 9, None),
        (5, 0, Some((5, HwBranchType::RelJmp))),
        (5, 1, None),
        // A block goes on after a system call; an indirect jump reaches any place.
        (7, 0, Some((9, HwBranchType::IndJmp))),
        (11, 0, None),
        // Taken or not, it goes to the next instruction.
        (13, 15, None),
    ] {
        let found = unseen_branch(pid, code + start, code + ip);
        let wanted = branch.map(|(from, class)| Retired::user(code + from, code + ip, class));
        assert_eq!(found, wanted, "{start} {ip}");
    }
}
