use super::*;

#[test]
fn wait_statuses_as_ptrace_documents_them() {
    assert_eq!(Stop::of(3 << 8), Stop::Ended(Exit::Code(3)));
    assert_eq!(Stop::of(9), Stop::Ended(Exit::Signal(9)));
    assert_eq!(Stop::of(10 << 8 | 0x7F), Stop::Signal(10));
    assert_eq!(Stop::of(4 << 16 | 5 << 8 | 0x7F), Stop::Exec);
    assert_eq!(Stop::of(6 << 16 | 5 << 8 | 0x7F), Stop::Exit);
    assert_eq!(Stop::of(128 << 16 | 19 << 8 | 0x7F), Stop::Group);
    assert_eq!(Stop::of(128 << 16 | 5 << 8 | 0x7F), Stop::Other);
}
