//! Lessons about every LBR stack: what it records, in which order, with which filters.

use super::{
    EVERY_KIND, Lesson, PLAIN,
    StackProperty::{
        From, Mispredicted, NewestCycles, NewestFrom, NewestSlot, OldestFrom, Records,
    },
    ask,
};

pub(super) const TAKEN: Lesson = Lesson {
    name: "taken",
    title: "Only taken branches are logged",
    text: &[
        "A CPU with Last Branch Records notes, for each taken branch, its own address (FROM) and \
         its target (TO). The CPU does so without help from the program, in a set of registers: \
         the LBR stack.",
        "A branch that is not taken leaves no record. Still, its execution can be inferred: all \
         instructions from the TO of one record to the FROM of the next were executed, and a \
         conditional branch among them was not taken.",
        "Step through the loop, which counts odd numbers, and watch which records `je` makes.",
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
            "`check` (je) is executed three times. How many records does it make?",
            "It is taken for n = 2 only.",
        ),
        ask(
            &[],
            Records,
            "How many records are there at the end?",
            "`check` once, and `again` (jne) twice: the third time it is not taken.",
        ),
    ],
    ..PLAIN
};

pub(super) const WRAP: Lesson = Lesson {
    name: "wrap",
    title: "The LBR stack wraps",
    cpu: "nehalem",
    text: &[
        "The number of slots depends on the CPU: 4 on Core 2, 16 on Nehalem to Broadwell and on \
         Zen 4, 32 since Skylake. When all are full, the newest record replaces the oldest.",
        "Lost records are not counted. A full LBR stack holds the last branches, however many \
         there were before.",
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
            "21 branches are taken. How many records are there at the end?",
            "Nehalem has 16 slots.",
        ),
        ask(
            &[],
            From("main"),
            "How many records of the call of setup remain?",
            "It was the first of 21 branches, and only the last 16 are kept.",
        ),
        ask(
            &[],
            OldestFrom,
            "Which branch is the oldest record?",
            "Only records of the loop remain.",
        ),
    ],
    ..PLAIN
};

pub(super) const TOS: Lesson = Lesson {
    name: "tos",
    title: "TOS and order",
    text: &[
        "MSR_LASTBRANCH_TOS holds the slot of the newest record. The CPU increments it, modulo \
         the number of slots, before it writes: after a reset the first record is in slot 1.",
        "The record that is k older than the newest is in slot (TOS - k) modulo the depth. \
         Walking upwards from TOS reads the oldest first.",
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
            "Which slot has the newest record at the end?",
            "Five branches were taken, and the first went to slot 1.",
        ),
        ask(
            &[],
            NewestFrom,
            "Which branch is it? (a name, name+offset, or an address)",
            "The jump was taken last.",
        ),
    ],
    ..PLAIN
};

pub(super) const FILTERS: Lesson = Lesson {
    name: "filters",
    title: "Each filter bit",
    filter: "any",
    text: &[
        "MSR_LBR_SELECT keeps branches out of the LBR stack. A set bit suppresses what it names; \
         0 records everything. The two lowest test the ring (privilege level) in which a branch \
         ends, not where it started: SYSRET ends in user mode.",
        "The program takes eleven branches, at least one of each kind, including a system call. \
         Toggle a bit before you step, and predict what will be missing.",
        "On Architectural LBR the bits of IA32_LBR_CTL do the opposite: they capture what they \
         name.",
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
            "The three that end in ring 0.",
        ),
        ask(&["JCC"], Records, "JCC: how many?", "One conditional branch was taken."),
        ask(
            &["NEAR_REL_CALL"],
            Records,
            "NEAR_REL_CALL: how many?",
            "The program calls near, and the kernel calls work.",
        ),
        ask(&["NEAR_IND_CALL"], Records, "NEAR_IND_CALL: how many?", "`call rax` is the only one."),
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
            "Only `jmp rax`: since Sandy Bridge (SDM 17.8) the bit ignores indirect calls and returns.",
        ),
        ask(&["NEAR_REL_JMP"], Records, "NEAR_REL_JMP: how many?", "Only `jmp then`."),
        ask(
            &["FAR_BRANCH"],
            Records,
            "FAR_BRANCH: how many?",
            "SYSCALL and SYSRET are far; interrupts and exceptions would be too.",
        ),
    ],
    ..PLAIN
};

pub(super) const CALLSTACK: Lesson = Lesson {
    name: "callstack",
    title: "Call-stack mode and the leaf-call problem",
    cpu: "haswell",
    filter: "stack,u",
    text: &[
        "A call-stack profile asks how a program came to where it is: main called outer, outer \
         called inner. But if a function calls a small one many times, the leaf's calls and \
         returns fill the LBR stack and push out the callers.",
        "With EN_CALLSTACK (since Haswell and Goldmont) calls push a record and returns pop the \
         newest: a leaf that returned leaves no record. The other branch bits must be those of \
         0x3c5 or 0x3c4; otherwise the records are undefined, and nothing is recorded here (SDM \
         17.9).",
        "A call of the next instruction, which code uses to find its own address, has no return: \
         it is not pushed. The program stops where a sample would be taken.",
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
            "The calls of outer and inner, which have not returned.",
        ),
        ask(
            &["EN_CALLSTACK"],
            From("top"),
            "Without EN_CALLSTACK, how many records of the call of outer remain?",
            "Forty calls and returns of leaf overwrote all sixteen slots.",
        ),
        ask(
            &["EN_CALLSTACK"],
            From("pic"),
            "And of the call of the next instruction, without that mode?",
            "Only call-stack mode ignores it.",
        ),
    ],
    ..PLAIN
};

pub(super) const PREDICT: Lesson = Lesson {
    name: "predict",
    title: "Mispredictions and cycles",
    text: &[
        "A record has a mispredict flag (MISPRED) and, since Skylake and on Goldmont, the number \
         of core cycles since the previous record (CYC_CNT).",
        "Both are modelled here, not measured: a two-bit counter predicts each conditional \
         branch, an instruction takes one cycle, and a misprediction costs 15 more, which appear \
         in the next record.",
        "A branch that was predicted taken and is not taken is mispredicted too, but makes no \
         record: only half of all mispredictions are visible. Look for FROM[63] on Haswell, and \
         for the cycles in TO on Goldmont.",
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
            "`check` (je) is mispredicted all six times. How many of these are visible?",
            "Three times it is not taken, against its prediction.",
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
    ..PLAIN
};
