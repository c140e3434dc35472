//! The lessons.

use super::Lesson;
use super::question::{
    Asked::{
        From, InTransaction, Kernel, Mispredicted, NewestCycles, NewestFrom, NewestSlot,
        OldestFrom, Records,
    },
    Question,
};

const fn ask(
    toggle: &'static [&'static str],
    of: super::Asked,
    ask: &'static str,
    why: &'static str,
) -> Question {
    Question { ask, toggle, of, why }
}

/// One branch of each kind that filters tell apart, and a system call.
const EVERY_KIND: &str = "
main:  call near          ; near();
       lea rax, near      ; f = near;
       call rax           ; f();                   @to near
       lea rax, on        ; p = &&on;
       jmp rax            ; goto *p;               @to on
on:    jmp then           ; goto then;
then:  test edx,edx       ; if (d == 0)
       je done            ;     goto done;         @taken 1
       nop
done:  syscall            ; getpid();
       ret                ; return;
near:  ret                ; void near() {}
kernel
entry: call work          ; the kernel's way in
       sysret             ; and out
work:  ret                ; its work
";

/// The course, in the order in which it is taught.
pub const LESSONS: &[Lesson] = &[
    Lesson {
        name: "taken",
        title: "Only taken branches are logged",
        cpu: "skylake",
        filter: "any,u",
        set: &[],
        erratum: "",
        text: &[
            "A CPU with Last Branch Records writes down, for each branch that it takes, where the \
             branch was (FROM) and where it went (TO). It does so by itself, in a ring of registers, \
             and the program does not notice.",
            "A branch that falls through leaves nothing. That it ran can still be told: the \
             instructions from the TO of one record to the FROM of the next ran one after the other, \
             and a conditional branch among them was not taken.",
            "Step through the loop, which counts odd numbers, and watch what `je` leaves in the ring.",
        ],
        code: "
main:  xor eax,eax        ; odd = 0;
       mov ecx, 3         ; n = 3;
next:  test cl,0x1        ; do { if (n is odd)
check: je even            ;                        @taken NTN
       inc eax            ;         odd++;
even:  dec ecx            ; } while (--n);
again: jne next           ;                        @taken 2
       ret                ; return odd;
",
        questions: &[
            ask(
                &[],
                From("check"),
                "`check` (je) runs three times. How many records are of it?",
                "It is taken for n = 2 alone.",
            ),
            ask(
                &[],
                Records,
                "How many records does the ring hold at the end?",
                "`check` once, and `again` (jne) twice: the third time it falls through.",
            ),
        ],
    },
    Lesson {
        name: "wrap",
        title: "The ring wraps",
        cpu: "nehalem",
        filter: "any,u",
        set: &[],
        erratum: "",
        text: &[
            "The ring has as many slots as its maker gave it: 4 on Core 2, 16 on Nehalem to Broadwell \
             and on Zen 4, 32 since Skylake. When all are full, the newest record takes the place of \
             the oldest.",
            "Nothing says how many were lost. A ring that is full holds the last branches, however \
             many there were before.",
        ],
        code: "
main:  call setup         ; setup();
       mov ecx, 20        ; n = 20;
next:  dec ecx            ; do ; while (--n);
again: jne next           ;                        @taken 19
       ret                ; return;
setup: ret                ; void setup() {}
",
        questions: &[
            ask(
                &[],
                Records,
                "21 branches are taken. How many records does the ring hold at the end?",
                "Nehalem has 16 slots.",
            ),
            ask(
                &[],
                From("main"),
                "How many records are left of the call of setup?",
                "It was the first of 21 branches, and only the last 16 are there.",
            ),
            ask(
                &[],
                OldestFrom,
                "Which branch is the oldest in the ring?",
                "All that is left is of the loop.",
            ),
        ],
    },
    Lesson {
        name: "tos",
        title: "TOS and order",
        cpu: "skylake",
        filter: "any,u",
        set: &[],
        erratum: "",
        text: &[
            "MSR_LASTBRANCH_TOS holds the slot of the newest record. The CPU counts it up, modulo the \
             number of slots, before it writes: after a reset the first record is in slot 1.",
            "The record that is k older than the newest is in slot (TOS - k) modulo the depth. Who \
             walks upwards from TOS reads the oldest first.",
            "Architectural LBR (Golden Cove) and Zen 4 have no TOS. There the newest is always in \
             slot 0, and the others move up. Change the CPU and see.",
        ],
        code: "
main:  call a             ; a();
       call b             ; b();
       jmp out            ; goto out;
a:     ret                ; void a() {}
b:     ret                ; void b() {}
out:   nop                ; out:
       ret                ; return;
",
        questions: &[
            ask(
                &[],
                NewestSlot,
                "In which slot is the newest record at the end?",
                "Five branches were taken, and the first went to slot 1.",
            ),
            ask(
                &[],
                NewestFrom,
                "Which branch is it of? (a name, name+distance, or an address)",
                "The jump was taken last.",
            ),
        ],
    },
    Lesson {
        name: "filters",
        title: "Each filter bit",
        cpu: "skylake",
        filter: "any",
        set: &[],
        erratum: "",
        text: &[
            "MSR_LBR_SELECT keeps branches out of the ring. A bit that is set suppresses what it names; \
             0 records everything. The two lowest look at the ring (privilege level) in which a branch \
             ends, not where it began: SYSRET ends in user mode.",
            "The program takes eleven branches, at least one of each kind, and goes through the kernel \
             and back. Toggle a bit before you step, and predict what will be missing.",
            "On Architectural LBR the bits of IA32_LBR_CTL capture what they name: the other way round.",
        ],
        code: EVERY_KIND,
        questions: &[
            ask(
                &["CPL_EQ_0"],
                Records,
                "CPL_EQ_0 is set. How many of the eleven are recorded?",
                "SYSCALL, and the call and the return in the kernel, end in ring 0. SYSRET does not.",
            ),
            ask(
                &["CPL_NEQ_0"],
                Records,
                "CPL_NEQ_0 instead: how many?",
                "The three that end in ring 0 are left.",
            ),
            ask(&["JCC"], Records, "JCC: how many?", "One conditional branch was taken."),
            ask(
                &["NEAR_REL_CALL"],
                Records,
                "NEAR_REL_CALL: how many?",
                "The program calls near, and the kernel calls work.",
            ),
            ask(
                &["NEAR_IND_CALL"],
                Records,
                "NEAR_IND_CALL: how many?",
                "`call rax` is the only one.",
            ),
            ask(
                &["NEAR_RET"],
                Records,
                "NEAR_RET: how many?",
                "near returns twice, and work in the kernel once.",
            ),
            ask(
                &["NEAR_IND_JMP"],
                Records,
                "NEAR_IND_JMP: how many?",
                "`jmp rax` alone: since Sandy Bridge (SDM 17.8) the bit leaves indirect calls and returns.",
            ),
            ask(&["NEAR_REL_JMP"], Records, "NEAR_REL_JMP: how many?", "`jmp then` alone."),
            ask(
                &["FAR_BRANCH"],
                Records,
                "FAR_BRANCH: how many?",
                "SYSCALL and SYSRET are far; interrupts and exceptions would be too.",
            ),
        ],
    },
    Lesson {
        name: "callstack",
        title: "Call-stack mode and the leaf-call problem",
        cpu: "haswell",
        filter: "stack,u",
        set: &[],
        erratum: "",
        text: &[
            "Who samples calls wants to know how a program came to where it is: main called outer, \
             outer called inner. But a function that calls a small one many times fills the ring with \
             that: the leaf's calls and returns push out the callers.",
            "With EN_CALLSTACK (since Haswell and Goldmont) calls push a record and returns take the \
             newest away: a leaf that returned has left nothing. The other branch bits have to be \
             those of 0x3c5 or 0x3c4; with any others the records are undefined, and nothing is \
             recorded here (SDM 17.9).",
            "A call of the next instruction, by which code finds out where it is, has no return: it is \
             not pushed. The program stops where a sample would be taken.",
        ],
        code: "
main:  push rbp
top:   call outer         ; outer();
       ret
outer: call inner         ; void outer() { inner(); }
       ret
inner: mov ecx, 20        ; void inner() {
next:  call leaf          ;     do leaf();
       dec ecx            ;     while (--n);
       jne next           ;                        @taken 19
pic:   call here          ;     where am I?
here:  pop rbx
       nop                ;     a sample is taken  @stop
       ret                ; }
leaf:  ret                ; void leaf() {}
",
        questions: &[
            ask(
                &[],
                Records,
                "How many records are there when the sample is taken?",
                "The calls of outer and of inner, which have not returned.",
            ),
            ask(
                &["EN_CALLSTACK"],
                From("top"),
                "Without EN_CALLSTACK, how many records of the call of outer are left?",
                "Forty calls and returns of leaf went through a ring of sixteen.",
            ),
            ask(
                &["EN_CALLSTACK"],
                From("pic"),
                "And of the call of the next instruction, without the mode?",
                "Only call-stack mode leaves it out.",
            ),
        ],
    },
    Lesson {
        name: "predict",
        title: "Mispredictions and cycles",
        cpu: "skylake",
        filter: "any,u",
        set: &[],
        erratum: "",
        text: &[
            "A record says whether the branch was mispredicted (MISPRED), and since Skylake, and on \
             Goldmont, how many core cycles went by since the record before (CYC_CNT).",
            "Both are modelled here, not measured: a branch is expected to do what it did last time, \
             an instruction takes one cycle, and a wrong prediction costs 15 more, which show in the \
             next record.",
            "A branch that was predicted taken and falls through is mispredicted too, but has no \
             record. Mispredictions are half seen. Look for FROM[63] on Haswell, and for the cycles in \
             TO on Goldmont.",
        ],
        code: "
main:  mov ecx, 6         ; n = 6;
next:  test cl,0x1        ; do { if (n is odd)
check: je even            ;                        @taken TN
       inc eax            ;         odd++;
even:  dec ecx            ; } while (--n);
again: jne next           ;                        @taken 5
       ret                ; return odd;
",
        questions: &[
            ask(
                &[],
                From("check"),
                "`check` (je) is mispredicted all six times that it runs. How many of these can be seen?",
                "Three times it falls through, against its prediction.",
            ),
            ask(
                &[],
                Mispredicted,
                "How many records have MISPRED set?",
                "Three of `check`, and the first of `again`, which was new.",
            ),
            ask(
                &[],
                NewestCycles,
                "How many cycles does the newest record have?",
                "dec and jne are two; the misprediction of `check` before them costs 15.",
            ),
        ],
    },
    Lesson {
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
    },
    Lesson {
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
    },
    Lesson {
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
            ask(
                &[],
                Records,
                "How many records does the loop leave?",
                "`again` is taken three times.",
            ),
            ask(
                &[],
                From("again"),
                "With fusion as here, how many have the address of `again` (jne) in FROM?",
                "All three were fused with the `cmp` before it.",
            ),
        ],
    },
    Lesson {
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
    },
    Lesson {
        name: "nehalem",
        title: "Erratum: jump filters that swallow calls",
        cpu: "nehalem",
        filter: "any",
        set: &[],
        erratum: "",
        text: &[
            "On Nehalem, Westmere and Silvermont the two jump bits take more than jumps: NEAR_REL_JMP \
             suppresses relative calls too, NEAR_IND_JMP indirect calls and returns (SDM 17.8 says that \
             Sandy Bridge \"enhanced\" them; Linux works around it in its nhm map).",
            "Who wants calls alone has to let the jumps in and sort them out afterwards. It is the \
             program of `filters`; compare with Skylake.",
        ],
        code: EVERY_KIND,
        questions: &[
            ask(
                &["NEAR_REL_JMP"],
                Records,
                "NEAR_REL_JMP is set. How many of the eleven are recorded?",
                "The jump, and both relative calls with it.",
            ),
            ask(
                &["NEAR_IND_JMP"],
                Records,
                "NEAR_IND_JMP instead: how many?",
                "The jump, the indirect call, and three returns.",
            ),
        ],
    },
    Lesson {
        name: "double-abort",
        title: "Erratum: an abort that is there twice (lbr_double_abort)",
        cpu: "haswell",
        filter: "any,u",
        set: &[],
        erratum: "double-abort",
        text: &[
            "Haswell can write two records for one aborted transaction, one of them without the abort \
             flag. Linux calls it lbr_double_abort and drops one of the two when it reads.",
            "Take the erratum away and run again: one record is left.",
        ],
        code: "
main:  xbegin failed      ; transaction {
abort: xabort 1           ;     abort;
       xend               ; }
       ret
failed: jmp out           ; on abort: goto out;
out:   nop
       ret
",
        questions: &[ask(
            &[],
            From("abort"),
            "The transaction is aborted once. How many records come from XABORT?",
            "One with TSX_ABORT, and one more.",
        )],
    },
    Lesson {
        name: "am94",
        title: "Erratum AM94: frozen too early",
        cpu: "06_16",
        filter: "any,u,k",
        set: &["FREEZE_LBRS_ON_PMI"],
        erratum: "freeze-early",
        text: &[
            "With FREEZE_LBRS_ON_PMI an interrupt of the performance monitor stops recording, so that \
             the ring still holds what led to it. Before perfmon version 4 the CPU clears DEBUGCTL.LBR, \
             later it sets LBR_FRZ in the global status.",
            "On Celerons of the Core 2 family (AM94) the freeze can come too early: the last record \
             before the interrupt is not there. The ring has four slots and no filter.",
        ],
        code: "
main:  call a             ; a();
       call b             ; b();
last:  jmp out            ; goto out;
a:     ret                ; void a() {}
b:     ret                ; void b() {}
out:   nop                ; out:                   @pmi 1
       ret                ; return;
",
        questions: &[
            ask(
                &[],
                NewestFrom,
                "Which branch does the newest record show once the ring is frozen?",
                "The jump, which ran last, is missing.",
            ),
            ask(
                &["FREEZE_LBRS_ON_PMI"],
                NewestFrom,
                "And where FREEZE_LBRS_ON_PMI is not set?",
                "Nothing froze, nothing was lost: the jump.",
            ),
        ],
    },
    Lesson {
        name: "bu10",
        title: "Erratum BU10: wrong after SMM",
        cpu: "ivy-bridge",
        filter: "any,u",
        set: &[],
        erratum: "smm-corrupts",
        text: &[
            "Firmware interrupts everything, the kernel too, to do its own work in System Management \
             Mode (SMI), which no program sees. On mobile Ivy Bridge (BU10) the records may be wrong \
             afterwards.",
            "The erratum does not say what stands in them then. Here the newest becomes one that no \
             branch of the program made: 0x38000, where SMM begins.",
        ],
        code: "
main:  call work          ; work();
       nop                ;                        @smi 1
       ret                ; return;
work:  ret                ; void work() {}
",
        questions: &[ask(
            &[],
            NewestFrom,
            "What does the newest record have in FROM? (an address)",
            "It is not of this program. Records are evidence of what the CPU wrote, not of what ran.",
        )],
    },
];
