//! What every ring does: what it records, in which order, filtered how.

use super::{
    Asked::{From, Mispredicted, NewestCycles, NewestFrom, NewestSlot, OldestFrom, Records},
    EVERY_KIND, Lesson, ask,
};

pub(super) const TAKEN: Lesson = Lesson {
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
};

pub(super) const WRAP: Lesson = Lesson {
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
};

pub(super) const TOS: Lesson = Lesson {
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
};

pub(super) const FILTERS: Lesson = Lesson {
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
};

pub(super) const CALLSTACK: Lesson = Lesson {
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
};

pub(super) const PREDICT: Lesson = Lesson {
    name: "predict",
    title: "Mispredictions and cycles",
    cpu: "skylake",
    filter: "any,u",
    set: &[],
    erratum: "",
    text: &[
        "A record says whether the branch was mispredicted (MISPRED), and since Skylake, and on \
         Goldmont, how many core cycles went by since the record before (CYC_CNT).",
        "Both are modelled here, not measured: a counter of two bits predicts each conditional \
         branch, an instruction takes one cycle, and a misprediction costs 15 more, which appear \
         in the next record.",
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
};
