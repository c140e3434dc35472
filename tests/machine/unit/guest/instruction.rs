use super::{Hooked, cycles};

#[test]
fn hooked_instructions_are_distinguished_from_similar_immediates() {
    assert_eq!(Hooked::of(&[0x0F, 0x32]), Some(Hooked::ReadMsr));
    assert_eq!(Hooked::of(&[0x48, 0x0F, 0x30]), Some(Hooked::WriteMsr));
    assert_eq!(Hooked::of(&[0x0F, 0xA2]), Some(Hooked::Cpuid));
    assert_eq!(Hooked::of(&[0x0F, 0x01, 0x1D, 0, 0, 0, 0]), Some(Hooked::LoadIdt));
    assert_eq!(Hooked::of(&[0x0F, 0x01, 0x18]), Some(Hooked::LoadIdt));
    assert_eq!(Hooked::of(&[0xF4]), Some(Hooked::Halt));
    // ret 0x320f
    assert_eq!(Hooked::of(&[0xC2, 0x0F, 0x32]), None);
    // lgdt [rax]; vmmcall (0F 01 D9, a register form of /3)
    assert_eq!(Hooked::of(&[0x0F, 0x01, 0x10]), None);
    assert_eq!(Hooked::of(&[0x0F, 0x01, 0xD9]), None);
    assert_eq!(Hooked::of(&[0x0F, 0x33]), Some(Hooked::ReadCounter));
    // hlt as an operand: in al, 0xf4
    assert_eq!(Hooked::of(&[0xE4, 0xF4]), None);
    assert_eq!(Hooked::of(&[]), None);
    assert_eq!(Hooked::of(&[0x66]), None);
}

#[test]
fn transactions_are_distinguished_from_moves() {
    // xbegin .-2; xend; xabort 7
    assert_eq!(Hooked::of(&[0xC7, 0xF8, 0xF8, 0xFF, 0xFF, 0xFF]), Some(Hooked::Begin));
    assert_eq!(Hooked::of(&[0xC7, 0xF8]), Some(Hooked::Begin));
    assert_eq!(Hooked::of(&[0x0F, 0x01, 0xD5]), Some(Hooked::End));
    assert_eq!(Hooked::of(&[0xC6, 0xF8, 7]), Some(Hooked::Abort));
    // mov eax, 0; mov al, 7
    assert_eq!(Hooked::of(&[0xC7, 0xC0, 0, 0, 0, 0]), None);
    assert_eq!(Hooked::of(&[0xC6, 0xC0, 7]), None);
}

#[test]
fn multiplications_and_divisions_take_longer() {
    // imul rax, rax; imul eax, eax, 3; mul rcx; imul ecx
    for bytes in
        [&[0x48, 0x0F, 0xAF, 0xC0][..], &[0x6B, 0xC0, 3], &[0x48, 0xF7, 0xE1], &[0xF7, 0xE9]]
    {
        assert_eq!(cycles(bytes), 3, "{bytes:x?}");
    }
    // div ecx; idiv rcx
    assert_eq!([cycles(&[0xF7, 0xF1]), cycles(&[0x48, 0xF7, 0xF9])], [26, 26]);
    // neg ecx; add eax, ecx; vpaddd ymm0, ymm0, ymm0
    for bytes in [&[0xF7, 0xD9][..], &[0x01, 0xC8], &[0xC5, 0xFD, 0xFE, 0xC0]] {
        assert_eq!(cycles(bytes), 1, "{bytes:x?}");
    }
}
