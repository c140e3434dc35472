//! What some CPUs have and others have not, and what reading does.

use super::{
    Asked::{From, InTransaction, Kernel, NewestSlot, Records},
    Lesson, ask,
};

pub(super) const TSX: Lesson = Lesson {
    name: "tsx",
    title: "Transactions (TSX)",
    cpu: "skylake",
    filter: "any,u",
    set: &[],
    erratum: "",
    text: &[
        "Between XBEGIN and XEND a program's stores show to nobody, and an abort takes all of them \
         back and goes on at the address that XBEGIN names. XBEGIN and XEND are no branches.",
        "A branch in a transaction has IN_TSX set, although it may be undone. An abort is a record \
         of its own: TSX_ABORT set, FROM where the program was, TO the fallback.",
        "The bits stand in FROM on Haswell, in INFO since Skylake, and nowhere on Nehalem, Goldmont \
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
            "How many records does the abort leave?",
            "One, from XABORT to the fallback.",
        ),
        ask(
            &[],
            InTransaction,
            "How many records have IN_TSX, the abort's included?",
            "call and ret twice, the abort, and the `je` that was taken. The jump back is outside.",
        ),
    ],
};

pub(super) const ARCH: Lesson = Lesson {
    name: "arch",
    title: "Architectural LBR",
    cpu: "golden-cove",
    filter: "any,u",
    set: &[],
    erratum: "",
    text: &[
        "Since Golden Cove (and Gracemont) CPUID describes the records, in leaf 1CH: nobody has to \
         know the model. IA32_LBR_CTL enables and filters; its bits capture what they name. \
         IA32_LBR_DEPTH says how many records are kept, and writing it clears them all.",
        "There is no TOS: record 0 is the newest, and FROM = 0 ends the list. INFO names the type \
         of the branch, which older CPUs leave to whoever reads the code, and says whether the \
         cycle count is valid: of the first record it is not.",
        "A call of the next instruction is no near call here, and is not recorded.",
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
            "SDM24 Table 20-2 takes it out of the near calls. (Skylake records it: change the CPU.)",
        ),
        ask(
            &["COND"],
            Records,
            "COND is cleared. How many records are left?",
            "Three calls and three returns; the two taken `jne` are no longer captured.",
        ),
    ],
};

pub(super) const AMD: Lesson = Lesson {
    name: "amd",
    title: "AMD LbrExtV2, and a fused branch",
    cpu: "zen4",
    filter: "any,u",
    set: &[],
    erratum: "fused-from",
    text: &[
        "Zen 4 has 16 records, the newest in slot 0. LBRV2EN in DBG_EXTN_CFG enables them, \
         LBR_SELECT suppresses as Intel's does. FROM[63] is the misprediction, TO[63] says that \
         the record is valid, TO[62] that it was speculative. There are no cycles, no types and no \
         transactions.",
        "Zen fuses a compare and the conditional branch behind it into one operation, and FROM may \
         then be the compare (Linux, amd/lbr.c). perf looks at the code and puts it right. Take \
         the erratum away and back, and compare.",
    ],
    code: "
main:  xor eax,eax        ; n = 0;
next:  inc eax            ; do n++;
less:  cmp eax,0x4        ; while (n != 4);
again: jne next           ;                        @taken 3
       ret                ; return;
",
    questions: &[
        ask(&[], Records, "How many records does the loop leave?", "`again` is taken three times."),
        ask(
            &[],
            From("again"),
            "With fusion as here, how many have the address of `again` (jne) in FROM?",
            "All three were fused with the `cmp` before it.",
        ),
    ],
};

pub(super) const MSR: Lesson = Lesson {
    name: "msr",
    title: "Reading through /dev/cpu/N/msr",
    cpu: "skylake",
    filter: "any",
    set: &[],
    erratum: "",
    text: &[
        "Linux gives these registers to root as /dev/cpu/N/msr. To read one of another CPU it \
         interrupts that CPU, and RDMSR runs there. While recording is on, that is recorded: an \
         interrupt, a call, a return, and the way back. A whole ring of 32 is 97 such reads.",
        "So whoever reads a ring that records reads mostly the reading. `lbr dump` switches \
         recording off first, reads, and puts it back.",
        "The filter helps: with CPL_EQ_0 only the return to user mode is left of each read, and \
         with FAR_BRANCH (perf has no name for it, lbr says no_far) not even that.",
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
            "Four registers are read meanwhile. How many records of that are in the ring?",
            "Four for each: the interrupt, the call, the return, IRET.",
        ),
        ask(
            &["CPL_EQ_0"],
            Kernel,
            "With CPL_EQ_0 set before: how many?",
            "IRET ends in user mode, so it is recorded, kernel address and all.",
        ),
        ask(
            &["CPL_EQ_0", "FAR_BRANCH"],
            Kernel,
            "With CPL_EQ_0 and FAR_BRANCH: how many?",
            "IRET is a far branch.",
        ),
    ],
};
