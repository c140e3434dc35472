//! Lessons about features of some CPUs only, and about reading the registers.

use super::{
    Lesson, PLAIN,
    StackProperty::{From, InTransaction, Kernel, NewestCycles, NewestSlot, Records},
    ask,
};

pub(super) const TSX: Lesson = Lesson {
    name: "tsx",
    title: "Transactions (TSX)",
    text: &[
        "Between XBEGIN and XEND a program's stores are invisible to other threads. An abort \
         undoes all of them and continues at the address given by XBEGIN. XBEGIN and XEND are \
         not branches.",
        "A branch in a transaction has IN_TSX set, although it may be undone. An abort makes its \
         own record: TSX_ABORT set, FROM the aborted instruction, TO the fallback.",
        "The bits are in FROM on Haswell, in INFO since Skylake, and absent on Nehalem, Goldmont \
         and Zen 4.",
    ],
    code: "
main:  xbegin failed      ; again: transaction {
       call work          ;     work();
       test edx,edx       ;     if (!good)
       je good            ;                        @taken NT
abort: xabort 1           ;         abort;
good:  xend               ; }
       ret
work:  dec edx            ; void work()
       ret
failed: jmp main          ; on abort: goto again;
",
    questions: &[
        ask(
            &[],
            From("abort"),
            "How many records does the abort make?",
            "One, from XABORT to the fallback.",
        ),
        ask(
            &[],
            InTransaction,
            "How many records have IN_TSX, the abort's included?",
            "call and ret twice, the abort, and the taken `je`. The jump back is outside.",
        ),
    ],
    ..PLAIN
};

pub(super) const ARCH: Lesson = Lesson {
    name: "arch",
    title: "Architectural LBR",
    cpu: "golden-cove",
    text: &[
        "Since Golden Cove (and Gracemont) CPUID leaf 1CH describes the records: software needs \
         no table of models. IA32_LBR_CTL enables and filters; its bits select what is captured. \
         IA32_LBR_DEPTH sets the number of records, and writing it clears them all.",
        "There is no TOS: record 0 is the newest, and FROM = 0 marks the end. INFO has the \
         branch type, which on older CPUs must be decoded from the instruction, and a bit that \
         marks the cycle count as valid: in the first record it is not.",
        "A call of the next instruction does not count as a near call here, and is not recorded.",
    ],
    code: "
main:  call here          ; where am I?
here:  pop rbx
       mov ecx, 3         ; n = 3;
next:  call work          ; do work();
       dec ecx            ; while (--n);
       jne next           ;                        @taken 2
       ret                ; return;
work:  ret                ; void work() {}
",
    questions: &[
        ask(&[], NewestSlot, "Which record is the newest at the end?", "Always record 0."),
        ask(
            &[],
            From("main"),
            "How many records are of the call of the next instruction?",
            "SDM24 Table 20-2 excludes it from near calls. (Skylake records it: change the CPU.)",
        ),
        ask(
            &["COND"],
            Records,
            "COND is cleared. How many records remain?",
            "Three calls and three returns; the two taken `jne` are no longer captured.",
        ),
    ],
    ..PLAIN
};

pub(super) const AMD: Lesson = Lesson {
    name: "amd",
    title: "AMD LbrExtV2, and a fused branch",
    cpu: "zen4",
    erratum: "fused-from",
    text: &[
        "Zen 4 has 16 records, the newest in slot 0. LBRV2EN in DBG_EXTN_CFG enables them, \
         LBR_SELECT suppresses as Intel's does. FROM[63] is the mispredict flag, TO[63] marks \
         the record as valid, TO[62] as speculative. There are no cycles, types or transaction \
         flags.",
        "Zen fuses a compare and the conditional branch after it into one operation, and FROM \
         may then be the compare's address (Linux, amd/lbr.c). perf decodes the code and \
         corrects it. Remove the erratum, add it again, and compare.",
    ],
    code: "
main:  xor eax,eax        ; n = 0;
next:  inc eax            ; do n++;
less:  cmp eax,0x4        ; while (n != 4);
again: jne next           ;                        @taken 3
       ret                ; return;
",
    questions: &[
        ask(&[], Records, "How many records does the loop make?", "`again` is taken three times."),
        ask(
            &[],
            From("again"),
            "With fusion as here, how many have the address of `again` (jne) in FROM?",
            "All three were fused with the `cmp` before it.",
        ),
    ],
    ..PLAIN
};

pub(super) const BRBE: Lesson = Lesson {
    name: "brbe",
    title: "Arm's BRBE",
    cpu: "brbe-8",
    text: &[
        "Arm's Branch Record Buffer Extension (FEAT_BRBE) has 8, 16, 32 or 64 records of three \
         system registers each: BRBSRC<n>_EL1 and BRBTGT<n>_EL1 hold the addresses, BRBINF<n>_EL1 \
         the type, the exception level, the mispredict flag and the cycle count. Record 0 is the \
         newest; there is no pointer. Records 32 to 63 are read through the same registers, after \
         BRBFCR_EL1.BANK is set.",
        "BRBCR_EL1 enables recording for each exception level and selects what is captured. \
         BRBFCR_EL1 selects the types; with EnI set, the selected types are excluded instead.",
        "Programs cannot read these registers: only the kernel can.",
    ],
    code: "
aarch64
main:  adr x8, near       ; f = near;
       blr x8             ; f();                   @to near
       mov x1, #3         ; n = 3;
next:  subs x1, x1, #1    ; while (--n);
again: b.ne next          ;                        @taken 2
       b done             ; goto done;
       nop
done:  svc #0             ; getpid();
       ret                ; return;
near:  ret                ; void near() {}
kernel
entry: bl work            ; the kernel's way in
       eret               ; and out
work:  ret                ; its work
",
    questions: &[
        ask(
            &[],
            Records,
            "How many records does the program leave?",
            "Five branches in user mode. SVC and ERET are an exception and its return, which E0BRE \
             does not include.",
        ),
        ask(
            &["CONDDIR"],
            From("again"),
            "CONDDIR is toggled in BRBFCR_EL1. How many records of `again` remain?",
            "The two taken `b.ne` are conditional direct branches.",
        ),
        ask(
            &["CC"],
            NewestCycles,
            "CC is cleared in BRBCR_EL1. How many cycles does the newest record have?",
            "Without CC, BRBINF says that the count is unknown (CCU).",
        ),
    ],
    ..PLAIN
};

pub(super) const MSR: Lesson = Lesson {
    name: "msr",
    title: "Reading through /dev/cpu/N/msr",
    filter: "any",
    text: &[
        "Linux exposes these registers to root as /dev/cpu/N/msr. To read a register of another \
         CPU it interrupts that CPU and executes RDMSR there. If recording is on, that is \
         recorded too: an interrupt, a call, a return, and the way back. A whole LBR stack of 32 \
         takes 97 such reads.",
        "So whoever reads an LBR stack while it records sees mostly his own reads. `lbr dump` \
         switches recording off, reads, and switches it on again.",
        "The filter helps: with CPL_EQ_0 only the return to user mode remains of each read, and \
         with FAR_BRANCH (perf has no name for it, lbr calls it no_far) not even that.",
    ],
    code: "
main:  mov ecx, 8         ; n = 8;
next:  dec ecx            ; do ; while (--n);      @irq ipi 3 4 5 6
again: jne next           ;                        @taken 7
       ret                ; return;
kernel
ipi:   call read          ; an interrupt of the reader
       iret
read:  rdmsr              ; reads one register
       ret
",
    questions: &[
        ask(
            &[],
            Kernel,
            "Four registers are read during recording. How many records does that make?",
            "Four each: the interrupt, the call, the return, IRET.",
        ),
        ask(
            &["CPL_EQ_0"],
            Kernel,
            "With CPL_EQ_0: how many?",
            "IRET ends in user mode, so it is recorded, kernel address and all.",
        ),
        ask(
            &["CPL_EQ_0", "FAR_BRANCH"],
            Kernel,
            "With CPL_EQ_0 and FAR_BRANCH: how many?",
            "IRET is a far branch.",
        ),
    ],
    ..PLAIN
};
