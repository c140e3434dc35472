use super::*;

/// Linux include/linux/errno.h: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND and
/// ERESTART_RESTARTBLOCK are 512, 513, 514 and 516. Outside of a system call ORIG_RAX is -1.
#[test]
fn a_call_that_the_kernel_restarts_executes_once_more() {
    #[allow(unsafe_code, reason = "libc's structures have no default value")]
    // SAFETY: the structure consists of integers.
    let none: Registers = unsafe { std::mem::zeroed() };
    let next = |rax: i64, call: i64| {
        let (rax, orig_rax) = (rax.cast_unsigned(), call.cast_unsigned());
        next_ip(&Registers { rip: 0x1002, rax, orig_rax, ..none })
    };
    for (error, restarts) in [
        (511, false),
        (512, true),
        (513, true),
        (514, true),
        (515, false),
        (516, true),
        (517, false),
    ] {
        assert_eq!(next(-error, 0), if restarts { 0x1000 } else { 0x1002 }, "read(2): {error}");
        assert_eq!(next(-error, -1), 0x1002, "no call: {error}");
        assert_eq!(next(error, 0), 0x1002, "a result: {error}");
    }
}
