use super::*;

fn summary(change: impl FnOnce(&mut [SamplerReport; 2], &mut Summary, &mut u64)) -> Summary {
    let mut samplers = [
        SamplerReport { drains: 3, accesses: 90, most_accesses: 53, ..Default::default() },
        SamplerReport { drains: 2, accesses: 40, most_accesses: 38, ..Default::default() },
    ];
    let stream = Tally { stacks: 5, branches: 60 };
    let mut decoded = Summary { labels: [(Label::Stream, stream)].into(), ..Default::default() };
    let mut retired = 60;
    change(&mut samplers, &mut decoded, &mut retired);
    Summary { retired: Some(retired), ..decoded }.with_samplers(samplers.to_vec())
}

#[test]
fn the_counts_of_all_samplers_are_added() {
    let all = summary(|samplers, _, _| (samplers[0].dropped, samplers[1].dropped) = (4, 5));
    assert_eq!((all.drains, all.accesses, all.most_accesses, all.dropped), (5, 130, 53, 9));
}

#[test]
fn any_loss_makes_a_recording_incomplete() {
    assert!(summary(|_, _, _| {}).is_one_stream());
    let none = Tally::default();
    for (what, is_complete) in [
        ("not joined", summary(|_, decoded, _| decoded.not_joined = 1).is_one_stream()),
        ("cut", summary(|_, decoded, _| decoded.cut = 1).is_one_stream()),
        ("unreadable", summary(|_, decoded, _| decoded.unreadable = 1).is_one_stream()),
        (
            "a gap",
            summary(|_, decoded, _| _ = decoded.labels.insert(Label::Gap, none)).is_one_stream(),
        ),
        ("more retired", summary(|_, _, retired| *retired = 61).is_one_stream()),
        ("fewer retired", summary(|_, _, retired| *retired = 59).is_one_stream()),
        ("dropped", summary(|samplers, _, _| samplers[1].dropped = 1).is_one_stream()),
        ("taken over", summary(|samplers, _, _| samplers[1].taken_over = true).is_one_stream()),
    ] {
        assert!(!is_complete, "{what}");
    }
}
