use proptest::prelude::*;

use super::*;

/// An item of a trace.
#[derive(Clone, Debug, PartialEq)]
enum Passed {
    Stack(Part, Vec<(usize, Option<usize>, Option<u32>)>),
    Exit(Thread),
}

#[derive(Default)]
struct Collect(Vec<Passed>);

impl Follow for Collect {
    fn part(&mut self, part: Part, steps: &[Step], _: &Edges) {
        let steps = steps.iter().map(|step| (step.edge, step.before, step.cycles));
        self.0.push(Passed::Stack(part, steps.collect()));
    }

    fn exit(&mut self, thread: Thread) {
        self.0.push(Passed::Exit(thread));
    }
}

fn a_thread() -> impl Strategy<Value = Thread> {
    (proptest::option::of(0..2u32), proptest::option::of(any::<u32>()))
}

fn a_part() -> impl Strategy<Value = Part> {
    let joins =
        prop_oneof![Just(Continuity::No), Just(Continuity::Start), Just(Continuity::Before)];
    (a_thread(), prop_oneof![Just(1), any::<u64>()], joins, any::<bool>())
        .prop_map(|(thread, weight, joins, goes_on)| Part { thread, weight, joins, goes_on })
}

fn passed() -> impl Strategy<Value = Passed> {
    let edge = || 0..5usize;
    let step = (edge(), proptest::option::of(edge()), proptest::option::of(0..3u32));
    prop_oneof![
        8 => (a_part(), proptest::collection::vec(step, 0..20))
            .prop_map(|(part, steps)| Passed::Stack(part, steps)),
        1 => a_thread().prop_map(Passed::Exit),
    ]
}

proptest! {
    /// In memory, compressed, and in a temporary file: a stack takes up to 100 bytes, a piece 64,
    /// and memory holds 128.
    #[test]
    fn what_is_kept_is_passed_on(
        mut wanted in proptest::collection::vec(passed(), 0..40),
        has_cycles in any::<bool>(),
    ) {
        let mut trace = if has_cycles { Trace::with_cycles() } else { Trace::default() };
        for passed in &mut wanted {
            match passed {
                Passed::Stack(part, steps) => {
                    let step =
                        |&(edge, before, cycles)| Step { edge, before, follows: false, cycles };
                    trace.stack(*part, &Vec::from_iter(steps.iter().map(step)));
                    if !has_cycles {
                        steps.iter_mut().for_each(|(.., cycles)| *cycles = None);
                    }
                }
                Passed::Exit(thread) => trace.exit(*thread),
            }
        }
        let mut collect = Collect::default();
        prop_assert!(trace.replay(&Edges::default(), &mut collect).is_ok());
        prop_assert_eq!(collect.0, wanted);
    }
}

/// A recording that does not fit is not shown in part.
#[test]
fn a_failure_while_stacks_are_kept_is_reported() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let mut trace = Trace { failed: Some(full), ..Trace::default() };
    let part = Part { thread: (None, None), weight: 1, joins: Continuity::No, goes_on: false };
    let step = Step { edge: 0, before: None, follows: false, cycles: None };
    (0..1000).for_each(|_| trace.stack(part, &[step]));
    let mut collect = Collect::default();
    let Err(error) = trace.replay(&Edges::default(), &mut collect) else { panic!("it failed") };
    assert!(error.to_string().contains("TMPDIR"));
    assert!(collect.0.is_empty());
}
