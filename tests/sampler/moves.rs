//! Moves of a thread by the kernel, and branches into the kernel: where they are among the recorded
//! branches.

use lbr_msr::record::{Event, HwBranchType, MoveKind, Sample};
use lbr_msr::soft::Retired;
use sampler::gate::{Recorder, Retire};
use sampler::{RecordConfig, Sampling};

use crate::model::Shape;
use crate::scripted::*;

/// The samples of one thread's script.
fn recorded(config: RecordConfig, mut source: Scripted) -> Vec<Sample> {
    let open = models(Shape::Info, config.caps.depth, config.call_stack);
    let mut events: Vec<Event> = Vec::new();
    record_on(&mut source, config, open, &mut events).unwrap();
    samples(&events).cloned().collect()
}

fn every(period: u64) -> RecordConfig {
    RecordConfig { sampling: Sampling::Period(period), ..config(Shape::Info, 16) }
}

/// `(newer, kind, from, to)`.
type Move = (u32, MoveKind, u64, u64);

/// Numbers of the branches in each stack, oldest first, and its moves.
fn of_each(samples: &[Sample]) -> Vec<(Vec<u64>, Vec<Move>)> {
    let number = |from| (from - branch(1, 0).from) / 4;
    let of_stack = |sample: &Sample| {
        let moves = sample.stack.moves.iter();
        (
            sample.stack.oldest_first().map(|entry| number(entry.from)).collect(),
            moves.map(|moved| (moved.newer, moved.kind, moved.from, moved.to)).collect(),
        )
    };
    samples.iter().map(of_stack).collect()
}

fn one(script: impl Fn(&mut sampler::gate::Ring) + Send + Sync + 'static) -> Scripted {
    Scripted::new(vec![Box::new(move |gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        script(&mut ring);
        ring.finish().unwrap();
    })])
}

#[test]
fn moves_are_placed_among_the_branches() {
    let source = one(|ring| {
        ring.moved(MoveKind::Start, 0, 0x10).unwrap();
        ring.retire_run(&[branch(1, 0), branch(1, 1)]).unwrap();
        ring.moved(MoveKind::Signal, 0x20, 0x30).unwrap();
        ring.retire_run(&[branch(1, 2), branch(1, 3)]).unwrap();
        // The period is full; the stack is drained before the next branch.
        ring.moved(MoveKind::Return, 0x40, 0x20).unwrap();
        ring.retire(&branch(1, 4)).unwrap();
        ring.moved(MoveKind::End, 0x50, 0).unwrap();
    });
    assert_eq!(
        of_each(&recorded(every(4), source)),
        [
            (
                vec![0, 1, 2, 3],
                vec![
                    (4, MoveKind::Start, 0, 0x10),
                    (2, MoveKind::Signal, 0x20, 0x30),
                    (0, MoveKind::Return, 0x40, 0x20),
                ]
            ),
            (vec![4], vec![(0, MoveKind::End, 0x50, 0)]),
        ]
    );
}

/// A drain without a branch since the last one makes no sample, which moves could be with.
#[test]
fn moves_before_an_empty_drain_are_kept_for_the_next() {
    let source = one(|ring| {
        ring.moved(MoveKind::Start, 0, 0x10).unwrap();
        ring.flush().unwrap();
        ring.retire(&branch(1, 0)).unwrap();
    });
    assert_eq!(
        of_each(&recorded(every(4), source)),
        [(vec![0], vec![(1, MoveKind::Start, 0, 0x10)])]
    );
}

/// Of more moves between two drains than are kept, the last becomes unknown.
#[test]
fn of_too_many_moves_the_last_is_unknown() {
    let source = one(|ring| {
        for n in 0..300 {
            ring.moved(MoveKind::Signal, n, n).unwrap();
        }
        ring.retire(&branch(1, 0)).unwrap();
    });
    let samples = recorded(every(4), source);
    let moves = &samples[0].stack.moves;
    assert_eq!((samples.len(), moves.len()), (1, 256));
    assert!(
        (0..255).zip(moves).all(|(n, moved)| (moved.kind, moved.from) == (MoveKind::Signal, n))
    );
    assert_eq!((moves[255].kind, moves[255].from), (MoveKind::Unknown, 299));
}

/// Only with every branch are moves recorded: not with a full stack, whose oldest branch may be
/// overwritten, nor in call-stack mode.
#[test]
fn moves_need_every_branch() {
    let script = || {
        one(|ring| {
            ring.moved(MoveKind::Start, 0, 0x10).unwrap();
            ring.retire(&Retired { class: HwBranchType::RelCall, ..branch(1, 0) }).unwrap();
        })
    };
    let moves = |config| recorded(config, script())[0].stack.moves.len();
    assert_eq!(moves(every(15)), 1);
    assert_eq!(moves(every(16)), 0);
    assert_eq!(moves(RecordConfig { call_stack: true, ..every(15) }), 0);
}

/// Their positions count the entries of the LBR, some of which a filter in software removes.
#[test]
fn moves_need_every_entry() {
    for (kept, moves) in [(None, 1), (Some(branch(1, 0).from), 0)] {
        let source = one(|ring| {
            ring.retire(&branch(1, 0)).unwrap();
            ring.moved(MoveKind::Signal, 0x20, 0x30).unwrap();
            ring.retire(&branch(1, 1)).unwrap();
        });
        let mut config = every(15);
        if let Some(kept) = kept {
            config.keep = Some(Box::new(move |entry| entry.from == kept));
        }
        let samples = recorded(config, source);
        let stack = &samples[0].stack;
        assert_eq!((stack.entries.len(), stack.moves.len()), (1 + moves, moves));
    }
}

/// The target of a branch into the kernel is unknown to a source that does not see the kernel.
#[test]
fn branches_into_an_unseen_kernel_are_not_recorded() {
    let into = Retired { cpl_after: 0, ..branch(1, 1) };
    let back = Retired { cpl_before: 0, ..branch(1, 2) };
    for kernel in [false, true] {
        let mut source = one(move |ring| {
            ring.retire_run(&[branch(1, 0), into, back]).unwrap();
            ring.retire(&into).unwrap();
        });
        source.knowledge.kernel = kernel;
        let numbers: Vec<u64> =
            of_each(&recorded(every(15), source)).into_iter().flat_map(|(all, _)| all).collect();
        assert_eq!(numbers, if kernel { vec![0, 1, 2, 1] } else { vec![0, 2] });
    }
}
