//! The lessons.

mod errata;
mod kinds;
mod ring;

use super::{Lesson, Question, StackProperty};

/// The course, in the order in which it is taught.
pub const LESSONS: &[&Lesson] = &[
    &ring::TAKEN,
    &ring::WRAP,
    &ring::TOS,
    &ring::FILTERS,
    &ring::CALLSTACK,
    &ring::PREDICT,
    &kinds::TSX,
    &kinds::ARCH,
    &kinds::AMD,
    &kinds::BRBE,
    &kinds::MSR,
    &errata::NEHALEM,
    &errata::DOUBLE_ABORT,
    &errata::AM94,
    &errata::BU10,
];

/// A lesson on a Skylake that records all user branches; each lesson fills in its own parts.
const PLAIN: Lesson = Lesson {
    name: "",
    title: "",
    cpu: "skylake",
    filter: "any,u",
    set: &[],
    erratum: "",
    text: &[],
    code: "",
    questions: &[],
};

const fn ask(
    toggle: &'static [&'static str],
    of: StackProperty,
    ask: &'static str,
    why: &'static str,
) -> Question {
    Question { ask, toggle, of, why }
}

/// One branch of each kind that filters distinguish, and a system call.
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
