use super::*;

#[test]
fn endings() {
    let block = |bytes: &[u8]| Block::new(Isa::X86_64, 0x1000, 0x1010, bytes, 3);
    let ends = |bytes: &[u8]| block(bytes).ending;
    assert_eq!(ends(&[0x75, 0x10]), Ending::Conditional); // jnz +16
    assert_eq!(ends(&[0x75, 0x00]), Ending::Invisible); // jnz +0
    assert_eq!(ends(&[0xeb, 0x00]), Ending::Direct); // jmp +0
    assert_eq!(ends(&[0xe8, 0, 0, 0, 0]), Ending::Direct); // call +0
    assert_eq!(ends(&[0xc3]), Ending::Indirect); // ret
    assert_eq!(ends(&[0xff, 0xe0]), Ending::Indirect); // jmp *rax
    assert_eq!(ends(&[0x0f, 0x05]), Ending::Straight); // syscall
    assert_eq!(ends(&[0xf3, 0xaa]), Ending::Straight); // rep stosb
    assert_eq!(ends(&[0x06]), Ending::Straight, "no instruction of 64-bit code");
    let arm = |word: u32| Block::new(Isa::Aarch64, 0x1000, 0x1010, &word.to_le_bytes(), 5);
    assert_eq!(arm(0x5400_0040).ending, Ending::Conditional); // b.eq +8
    assert_eq!(arm(0xB400_0020).ending, Ending::Invisible); // cbz x0, +4
    assert_eq!(arm(0x97FF_FFFF).ending, Ending::Direct); // bl -4
    assert_eq!(arm(0xD65F_03C0).ending, Ending::Indirect); // ret
    assert_eq!(arm(0xD400_0001).ending, Ending::Straight); // svc #0
    let jump = block(&[0x75, 0x10]);
    assert_eq!((jump.next, jump.target), (0x1012, 0x1022));
    let inside = [0xfff, 0x1000, 0x1011, 0x1012].map(|address| jump.contains(address));
    assert_eq!(inside, [false, true, true, false]);
}
