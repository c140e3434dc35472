//! Lessons about CPUs whose LBR stack does not work as documented.

use super::{
    EVERY_KIND, Lesson, PLAIN,
    StackProperty::{From, NewestFrom, Records},
    ask,
};

pub(super) const NEHALEM: Lesson = Lesson {
    name: "nehalem",
    title: "Erratum: jump filters that swallow calls",
    cpu: "nehalem",
    filter: "any",
    text: &[
        "On Nehalem, Westmere and Silvermont the two jump bits suppress more than jumps: \
         NEAR_REL_JMP suppresses relative calls too, and NEAR_IND_JMP indirect calls and returns \
         (SDM 17.8 says that Sandy Bridge \"enhanced\" them; Linux works around it in its nhm \
         map).",
        "To record only calls, let the jumps in and discard them afterwards. The program is that \
         of `filters`; compare with Skylake.",
    ],
    code: EVERY_KIND,
    questions: &[
        ask(
            &["NEAR_REL_JMP"],
            Records,
            "NEAR_REL_JMP is set. How many of the eleven are recorded?",
            "All but the jump and both relative calls.",
        ),
        ask(
            &["NEAR_IND_JMP"],
            Records,
            "NEAR_IND_JMP instead: how many?",
            "All but the jump, the indirect call and three returns.",
        ),
    ],
    ..PLAIN
};

pub(super) const DOUBLE_ABORT: Lesson = Lesson {
    name: "double-abort",
    title: "Erratum: an abort recorded twice (lbr_double_abort)",
    cpu: "haswell",
    erratum: "double-abort",
    text: &[
        "Haswell can write two records for one aborted transaction, one of them without the \
         abort flag. Linux calls this lbr_double_abort and drops one of the two when it reads.",
        "Remove the erratum and run again: one record remains.",
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
    ..PLAIN
};

pub(super) const AM94: Lesson = Lesson {
    name: "am94",
    title: "Erratum AM94: frozen too early",
    cpu: "06_16",
    filter: "any,u,k",
    set: &["FREEZE_LBRS_ON_PMI"],
    erratum: "freeze-early",
    text: &[
        "With FREEZE_LBRS_ON_PMI a performance-monitoring interrupt stops recording, so that the \
         LBR stack keeps the branches before it. Before perfmon version 4 the CPU clears \
         DEBUGCTL.LBR; since then it sets LBR_FRZ in the global status.",
        "On Celerons of the Core 2 family (AM94) the freeze can come too early: the last record \
         before the interrupt is missing. This LBR stack has four slots and no filter.",
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
            "Which branch is the newest record once the LBR stack is frozen?",
            "The jump, which ran last, is missing.",
        ),
        ask(
            &["FREEZE_LBRS_ON_PMI"],
            NewestFrom,
            "And without FREEZE_LBRS_ON_PMI?",
            "The jump: nothing froze, nothing was lost.",
        ),
    ],
};

pub(super) const BU10: Lesson = Lesson {
    name: "bu10",
    title: "Erratum BU10: wrong after SMM",
    cpu: "ivy-bridge",
    erratum: "smm-corrupts",
    text: &[
        "Firmware interrupts everything, even the kernel, to do its own work in System \
         Management Mode (SMI), invisible to software. On mobile Ivy Bridge (BU10) the records \
         may be wrong afterwards.",
        "The erratum does not specify their contents. Here the newest record becomes one that no \
         branch of the program made: 0x38000, where SMM code starts.",
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
        "What is FROM of the newest record? (an address)",
        "No branch of this program. Records show what the CPU wrote, not what ran.",
    )],
    ..PLAIN
};
