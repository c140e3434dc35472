use proptest::prelude::*;

use super::*;

/// A stack as a trace passes it on; `None` is the next recording.
type Passed = Option<(Part, Vec<(usize, Option<usize>, Option<u32>)>)>;

#[derive(Default)]
struct Collect(Vec<Passed>);

impl Follow for Collect {
    fn part(&mut self, part: Part, steps: &[Step], _: &Edges) {
        let steps = steps.iter().map(|step| (step.edge, step.before, step.cycles));
        self.0.push(Some((part, steps.collect())));
    }

    fn next_recording(&mut self) {
        self.0.push(None);
    }
}

fn a_part() -> impl Strategy<Value = Part> {
    let thread = (proptest::option::of(0..2u32), proptest::option::of(any::<u32>()));
    let joins =
        prop_oneof![Just(Continuity::No), Just(Continuity::Start), Just(Continuity::Before)];
    (thread, prop_oneof![Just(1), any::<u64>()], joins, any::<bool>())
        .prop_map(|(thread, weight, joins, goes_on)| Part { thread, weight, joins, goes_on })
}

proptest! {
    /// In memory, compressed, and in a temporary file: a stack takes up to 100 bytes, a piece 64,
    /// and memory holds 128.
    #[test]
    fn what_is_kept_is_passed_on(
        passed in proptest::collection::vec(proptest::option::weighted(0.9, (
            a_part(),
            proptest::collection::vec(
                (0..5usize, proptest::option::of(0..5usize), proptest::option::of(0..3u32)),
                0..20,
            ),
        )), 0..40),
        has_cycles in any::<bool>(),
    ) {
        let mut trace = if has_cycles { Trace::with_cycles() } else { Trace::default() };
        let mut wanted = passed;
        for stack in &wanted {
            let Some((part, steps)) = stack else {
                trace.next_recording();
                continue;
            };
            let step = |&(edge, before, cycles)| Step { edge, before, follows: false, cycles };
            trace.stack(*part, &steps.iter().map(step).collect::<Vec<_>>());
        }
        if !has_cycles {
            let steps = wanted.iter_mut().flatten().flat_map(|(_, steps)| steps);
            steps.for_each(|(.., cycles)| *cycles = None);
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
