//! Instruction classes, from bytes assembled by hand with the opcode map (SDM
//! Vol. 2, Appendix A).

use lbr_msr::insn::{
    BranchInsn, CodeBytes, Insn, Isa, UnderTrapFlag, abort_target, branch_kind, decode,
    under_trap_flag,
};
use lbr_msr::record::{BranchType as T, HwBranchType as H};

const IP: u64 = 0x40_1000;

#[track_caller]
fn branch(bytes: &[u8]) -> BranchInsn {
    let branch = branch_kind(bytes, IP).expect("a branch");
    assert_eq!(usize::from(branch.len), bytes.len(), "length");
    assert_eq!(branch.ip, IP);
    branch
}

#[test]
fn types_and_classes_follow_the_opcode_map() {
    let cases: &[(&[u8], T, H, Option<u64>)] = &[
        (&[0x74, 0x10], T::COND, H::Cond, Some(IP + 0x12)), // JE rel8
        (&[0x74, 0xfe], T::COND, H::Cond, Some(IP)),        // JE to itself
        (&[0x0f, 0x8f, 0xfa, 0xff, 0xff, 0xff], T::COND, H::Cond, Some(IP)), // JG rel32
        (&[0x3e, 0x75, 0x00], T::COND, H::Cond, Some(IP + 3)), // JNE with a hint
        (&[0xe0, 0x00], T::COND, H::Cond, Some(IP + 2)),    // LOOPNE
        (&[0xe1, 0x00], T::COND, H::Cond, Some(IP + 2)),    // LOOPE
        (&[0xe2, 0x80], T::COND, H::Cond, Some(IP - 126)),  // LOOP
        (&[0xe3, 0x7f], T::COND, H::Cond, Some(IP + 129)),  // JRCXZ
        (&[0x67, 0xe3, 0x00], T::COND, H::Cond, Some(IP + 3)), // JECXZ
        (&[0xeb, 0xfe], T::UNCOND, H::RelJmp, Some(IP)),    // JMP rel8
        (&[0xe9, 0, 0, 0, 0x80], T::UNCOND, H::RelJmp, Some((IP + 5).wrapping_sub(1 << 31))),
        (&[0xe8, 0x10, 0, 0, 0], T::CALL, H::RelCall, Some(IP + 0x15)), // CALL rel32
        (&[0x66, 0xe8, 0x10, 0, 0, 0], T::CALL, H::RelCall, Some(IP + 0x16)), // 66H is ignored
        (&[0xff, 0xd0], T::IND_CALL, H::IndCall, None),                 // CALL RAX
        (&[0x41, 0xff, 0xd3], T::IND_CALL, H::IndCall, None),           // CALL R11
        (&[0x3e, 0xff, 0xd0], T::IND_CALL, H::IndCall, None),           // NOTRACK CALL RAX
        (&[0xff, 0x15, 0, 0, 0, 0], T::IND_CALL, H::IndCall, None),     // CALL [RIP]
        (&[0xff, 0xe0], T::IND, H::IndJmp, None),                       // JMP RAX
        (&[0xf2, 0xff, 0x25, 0, 0, 0, 0], T::IND, H::IndJmp, None),     // BND JMP [RIP]
        (&[0xff, 0x18], T::IND_CALL, H::Other, None),                   // CALL FAR [RAX]
        (&[0x48, 0xff, 0x28], T::IND, H::Other, None),                  // JMP FAR m16:64
        (&[0xc3], T::RET, H::Ret, None),
        (&[0xf3, 0xc3], T::RET, H::Ret, None), // REP RET
        (&[0xc2, 0x08, 0x00], T::RET, H::Ret, None),
        (&[0xcb], T::RET, H::Other, None), // RETF
        (&[0x48, 0xcb], T::RET, H::Other, None),
        (&[0xca, 0x08, 0x00], T::RET, H::Other, None),
        (&[0xcc], T::IRQ, H::Other, None),       // INT3
        (&[0xcd, 0x80], T::IRQ, H::Other, None), // INT 80H
        (&[0xf1], T::IRQ, H::Other, None),       // INT1
        (&[0xcf], T::ERET, H::Other, None),
        (&[0x48, 0xcf], T::ERET, H::Other, None),
        (&[0xf3, 0x0f, 0x01, 0xec], T::ERET, H::Other, None), // UIRET
        (&[0x0f, 0x05], T::SYSCALL, H::Other, None),
        (&[0x0f, 0x34], T::SYSCALL, H::Other, None), // SYSENTER
        (&[0x0f, 0x07], T::SYSRET, H::Other, None),
        (&[0x48, 0x0f, 0x07], T::SYSRET, H::Other, None),
        (&[0x0f, 0x35], T::SYSRET, H::Other, None), // SYSEXIT
    ];
    for &(bytes, branch_type, class, target) in cases {
        let branch = branch(bytes);
        let got = (branch.branch_type, branch.class, branch.target);
        assert_eq!(got, (branch_type, class, target), "{bytes:02x?}");
        assert_eq!(branch.is_far(), class == H::Other, "{bytes:02x?}");
        assert_eq!(branch.is_conditional(), class == H::Cond, "{bytes:02x?}");
    }
}

#[test]
fn other_instructions_are_straight_or_invalid() {
    let straight: &[&[u8]] = &[
        &[0x90],
        &[0xf3, 0xa4],                         // REP MOVSB repeats its own address
        &[0x0f, 0x0b],                         // UD2 faults
        &[0x9c],                               // PUSHFQ
        &[0xc7, 0xf8, 0x10, 0, 0, 0],          // XBEGIN
        &[0xc6, 0xf8, 0x01],                   // XABORT
        &[0x0f, 0x01, 0xd5],                   // XEND
        &[0x0f, 0x01, 0xc1],                   // VMCALL
        &[0x0f, 0x44, 0xc1],                   // CMOVE
        &[0xf3, 0x0f, 0x1e, 0xfa],             // ENDBR64
        &[0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc0], // VADDPS ZMM
    ];
    for bytes in straight {
        assert_eq!(decode(bytes, IP), Insn::Straight { len: bytes.len() as u8 }, "{bytes:02x?}");
        assert_eq!(branch_kind(bytes, IP), None);
    }
    let invalid: &[&[u8]] = &[
        &[],
        &[0xe8, 0, 0],             // cut short
        &[0x9a, 0, 0, 0, 0, 0, 0], // CALL ptr16:32, invalid in 64-bit code
        &[0xea, 0, 0, 0, 0, 0, 0], // JMP ptr16:32, likewise
        &[0xce],                   // INTO, likewise
        &[0x06],                   // PUSH ES, likewise
        &[0x66; 16],               // more prefixes than an instruction holds
    ];
    for bytes in invalid {
        assert_eq!(decode(bytes, IP), Insn::Invalid, "{bytes:02x?}");
    }
}

#[test]
fn a_call_to_the_next_instruction_is_zero_length() {
    assert!(branch(&[0xe8, 0, 0, 0, 0]).is_zero_length_call());
    assert!(!branch(&[0xe8, 1, 0, 0, 0]).is_zero_length_call());
    assert!(!branch(&[0xeb, 0]).is_zero_length_call());
    assert!(!branch(&[0xff, 0xd0]).is_zero_length_call());
}

#[test]
fn direct_branches_go_only_to_their_target() {
    let jump = branch(&[0xeb, 0x10]);
    assert!(jump.can_reach(IP + 0x12));
    assert!(!jump.can_reach(IP + 2));
    assert!(branch(&[0xff, 0xe0]).can_reach(IP + 2));
    assert!(branch(&[0xc3]).can_reach(0xffff_8000_0000_0000));
    let top = branch_kind(&[0xeb, 0x10], u64::MAX - 1).expect("a branch");
    assert_eq!((top.next(), top.target), (0, Some(0x10)), "addresses wrap");
}

/// Each Jcc against its definition in SDM Vol. 2 (Jcc), over all 32 settings
/// of the five flags.
#[test]
fn conditions_follow_the_flags() {
    for setting in 0..32u64 {
        let [cf, pf, zf, sf, of] = [0, 1, 2, 3, 4].map(|i| setting >> i & 1 == 1);
        // 0x202: IF and the bit that is always 1, which no condition tests.
        let rflags = 0x202
            | u64::from(cf)
            | u64::from(pf) << 2
            | u64::from(zf) << 6
            | u64::from(sf) << 7
            | u64::from(of) << 11;
        let wanted = [
            of,
            !of,
            cf,
            !cf,
            zf,
            !zf,
            cf || zf,
            !cf && !zf,
            sf,
            !sf,
            pf,
            !pf,
            sf != of,
            sf == of,
            zf || sf != of,
            !zf && sf == of,
        ];
        for (opcode, wanted) in (0u8..).zip(wanted) {
            let short = branch(&[0x70 + opcode, 0]);
            let near = branch(&[0x0f, 0x80 + opcode, 0, 0, 0, 0]);
            assert_eq!(short.taken(rflags, 0), Some(wanted), "{opcode:#x} {rflags:#x}");
            assert_eq!(near.taken(rflags, 0), Some(wanted), "{opcode:#x} {rflags:#x}");
        }
    }
}

#[test]
fn loop_instructions_test_the_count_before_the_decrement() {
    const ZF: u64 = 0x40;
    const HIGH: u64 = 1 << 32;
    let (jrcxz, jecxz) = (branch(&[0xe3, 0]), branch(&[0x67, 0xe3, 0]));
    assert_eq!(jrcxz.taken(0, 0), Some(true));
    assert_eq!(jrcxz.taken(0, HIGH), Some(false));
    assert_eq!(jecxz.taken(0, HIGH), Some(true));
    assert_eq!(jecxz.taken(0, 1), Some(false));
    let (l, le, lne) = (branch(&[0xe2, 0]), branch(&[0xe1, 0]), branch(&[0xe0, 0]));
    for (rcx, zf, wanted) in [
        (1, 0, [false, false, false]),
        (1, ZF, [false, false, false]),
        (2, 0, [true, false, true]),
        (2, ZF, [true, true, false]),
        (0, ZF, [true, true, false]), // 0 − 1 wraps
    ] {
        assert_eq!([l, le, lne].map(|b| b.taken(zf, rcx)), wanted.map(Some), "rcx={rcx} zf={zf}");
    }
    let narrow = branch(&[0x67, 0xe2, 0]);
    assert_eq!(narrow.taken(0, HIGH + 1), Some(false), "ECX counts");
    assert_eq!(l.taken(0, HIGH + 1), Some(true));
    assert_eq!(branch(&[0xeb, 0]).taken(0, 0), None, "no condition");
}

#[test]
fn a_fused_from_finds_the_branch_after_the_compare() {
    let cmp_je = [0x48, 0x39, 0xd8, 0x74, 0x05]; // CMP RAX, RBX; JE +5
    let fused_branch = |bytes: &[u8], from| {
        CodeBytes { isa: Isa::X86_64, bytes: bytes.to_vec() }.fused_branch(from)
    };
    let fused = fused_branch(&cmp_je, IP).expect("the JE");
    assert_eq!((fused.ip, fused.target), (IP + 3, Some(IP + 10)));
    assert_eq!(fused_branch(&cmp_je[3..], IP + 3), Some(fused));
    assert_eq!(fused_branch(&[0x48, 0x39, 0xd8, 0xeb, 0x05], IP), None, "JMP does not fuse");
    assert_eq!(fused_branch(&[0x90, 0x90, 0x74, 0x05], IP), None, "only the next instruction");
    assert_eq!(fused_branch(&[0x48, 0x39, 0xd8], IP), None, "bytes end");
}

/// Words as the GNU assembler encodes these instructions.
#[test]
fn branches_of_aarch64_by_their_encodings() {
    let decode = |word: u32| Isa::Aarch64.decode(&word.to_le_bytes(), IP);
    let cases: [(u32, T, H, Option<u64>); 18] = [
        (0x1400_0004, T::UNCOND, H::RelJmp, Some(IP + 0x10)),
        (0x17FF_FFFF, T::UNCOND, H::RelJmp, Some(IP - 4)),
        (0x9400_0001, T::CALL, H::RelCall, Some(IP + 4)),
        (0x5400_0041, T::COND, H::Cond, Some(IP + 8)), // b.ne
        (0x54FF_FFF0, T::COND, H::Cond, Some(IP - 4)), // bc.eq
        (0x3400_0083, T::COND, H::Cond, Some(IP + 0x10)), // cbz w3
        (0xB5FF_FFE3, T::COND, H::Cond, Some(IP - 4)), // cbnz x3
        (0x3618_0043, T::COND, H::Cond, Some(IP + 8)), // tbz w3, #3
        (0xB707_FFE3, T::COND, H::Cond, Some(IP - 4)), // tbnz x3, #32
        (0xD61F_0060, T::IND, H::IndJmp, None),        // br x3
        (0xD71F_0861, T::IND, H::IndJmp, None),        // braa x3, x1
        (0xD63F_0060, T::IND_CALL, H::IndCall, None),  // blr x3
        (0xD65F_03C0, T::RET, H::Ret, None),
        (0xD65F_0060, T::RET, H::Ret, None), // ret x3
        (0xD65F_0BFF, T::RET, H::Ret, None), // retaa
        (0xD69F_03E0, T::ERET, H::Other, None),
        (0xD400_0001, T::SYSCALL, H::Other, None), // svc #0
        (0xD420_0020, T::IRQ, H::Other, None),     // brk #1
    ];
    for (word, branch_type, class, target) in cases {
        let branch = decode(word).branch().unwrap_or_else(|| panic!("{word:#x}"));
        let got = (branch.branch_type, branch.class, branch.target, branch.next());
        assert_eq!(got, (branch_type, class, target, IP + 4), "{word:#x}");
    }
    // nop; add; ldr; hvc; smc; isb.
    for word in [0xD503_201F, 0x8B01_0000, 0xF940_0000, 0xD400_0002, 0xD400_0003, 0xD503_3FDF] {
        assert_eq!(decode(word), Insn::Straight { len: 4 }, "{word:#x}");
    }
    // udf #0; cbgt (FEAT_CMPBR); too few bytes; an address that no instruction has.
    assert_eq!((decode(0), decode(0x7400_0000)), (Insn::Invalid, Insn::Invalid));
    assert_eq!(Isa::Aarch64.decode(&[0x1F, 0x20, 0x03], IP), Insn::Invalid);
    assert_eq!(Isa::Aarch64.decode(&0xD503_201Fu32.to_le_bytes(), IP + 2), Insn::Invalid);
}

#[test]
fn xbegin_names_its_fallback() {
    assert_eq!(abort_target(&[0xc7, 0xf8, 0x10, 0, 0, 0], IP), Some(IP + 0x16));
    assert_eq!(abort_target(&[0xc6, 0xf8, 0x01], IP), None);
    assert_eq!(abort_target(&[0xe9, 0, 0, 0, 0], IP), None);
}

#[test]
fn single_step_meets_pushf_and_mov_ss() {
    assert_eq!(under_trap_flag(&[0x9c], IP), UnderTrapFlag::PushesFlags);
    assert_eq!(under_trap_flag(&[0x66, 0x9c], IP), UnderTrapFlag::PushesFlags);
    assert_eq!(under_trap_flag(&[0x8e, 0xd0], IP), UnderTrapFlag::DelaysTrap);
    assert_eq!(under_trap_flag(&[0x8e, 0xd8], IP), UnderTrapFlag::Plain, "MOV DS");
    assert_eq!(under_trap_flag(&[0x9d], IP), UnderTrapFlag::PopsFlags, "POPF");
    assert_eq!(under_trap_flag(&[0x48, 0xcf], IP), UnderTrapFlag::PopsFlags, "IRETQ");
    assert_eq!(under_trap_flag(&[], IP), UnderTrapFlag::Plain);
}

proptest::proptest! {
    /// Any bytes at any address: no panic, a length that fits, and the classes
    /// that the first opcode byte alone decides.
    #[test]
    fn any_bytes_decode_to_something(bytes: [u8; 16], length in 0usize..=16, ip: u64) {
        let bytes = &bytes[..length];
        let (len, branch) = match decode(bytes, ip) {
            Insn::Branch(branch) => (branch.len, Some(branch)),
            Insn::Straight { len } => (len, None),
            Insn::Invalid => (0, None),
        };
        assert!(usize::from(len) <= bytes.len().min(15));
        assert_eq!(branch_kind(bytes, ip), branch);
        for isa in [Isa::X86_64, Isa::Aarch64] {
            let _ = CodeBytes { isa, bytes: bytes.to_vec() }.fused_branch(ip);
        }
        let _ = (abort_target(bytes, ip), under_trap_flag(bytes, ip));
        let class = branch.map(|branch| branch.class);
        let displaced = |bytes: &[u8]| {
            let sign_extended = bytes.first().map(|&b| i64::from(b as i8)).unwrap_or(0);
            ip.wrapping_add(2).wrapping_add_signed(sign_extended)
        };
        match bytes {
            [0x70..=0x7f | 0xe0..=0xe3, rest @ ..] if !rest.is_empty() => {
                assert_eq!(class, Some(H::Cond));
                assert_eq!(branch.and_then(|b| b.target), Some(displaced(rest)));
            }
            [0xeb, rest @ ..] if !rest.is_empty() => {
                assert_eq!(class, Some(H::RelJmp));
                assert_eq!(branch.and_then(|b| b.target), Some(displaced(rest)));
            }
            [0xc3, ..] => assert_eq!(class, Some(H::Ret)),
            [0xcc | 0xcb | 0xcf | 0xf1, ..] => assert_eq!(class, Some(H::Other)),
            [0x50..=0x5f | 0x90 | 0x9c | 0xb0..=0xb7, ..] => assert_eq!(class, None),
            _ => {}
        }
        if let Some(branch) = branch {
            assert_eq!(branch.condition.is_some(), branch.class == H::Cond);
            assert_eq!(branch.taken(0, 0).is_some(), branch.class == H::Cond);
        }
    }
}
