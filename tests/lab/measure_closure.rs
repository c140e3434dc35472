//! Measuring closures: only the closure's instructions are counted.

#![allow(unsafe_code, reason = "a loop whose instructions are known")]

use std::hint::black_box;

use lab::measure::Session;

#[test]
fn an_empty_closure_is_an_empty_measurement() {
    let mut session = Session::stepping().expect("a session");
    session.options().repeat = 3;
    let measured = session.measure(|| {}).expect("it runs");
    let counts = measured.counts.expect("counted");
    assert_eq!((counts.instructions, counts.branches, counts.not_taken), (0, 0, 0));
    assert!(measured.blocks.is_empty(), "{measured:?}");
    assert_eq!(measured.runs.len(), 3);
}

#[test]
fn a_loop_of_a_closure_is_counted() {
    let mut session = Session::stepping().expect("a session");
    session.options().repeat = 3;
    let mut of = |rounds: u64| {
        let measured = session.measure(|| {
            let mut n = rounds;
            // SAFETY: one register, and flags.
            unsafe {
                std::arch::asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) n, options(nomem, nostack));
            }
            black_box(n);
        });
        measured.expect("it runs")
    };
    let (few, many) = (of(10), of(1010));
    let counts = |m: &lab::measure::Measurement| m.counts.expect("counted");
    assert_eq!(counts(&many).branches - counts(&few).branches, 1000);
    assert_eq!(counts(&many).instructions - counts(&few).instructions, 2000);
    let hot = few.blocks.iter().max_by_key(|block| block.n).expect("a block");
    assert_eq!(
        hot.n,
        8 * u64::from(few.stepped),
        "ten iterations, the first entered by fall-through"
    );
}
