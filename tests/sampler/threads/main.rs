//! The engine's threads as one seed plays them: their order, the clock, the program and what goes
//! wrong. The crate's own modules are compiled here, with shuttle's threads instead of the
//! system's. A seed that fails is printed, and `LBR_SEEDS=SEED` plays it again;
//! `LBR_SEEDS=FROM..TO` plays others.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(dead_code, unreachable_pub, unused_imports, reason = "not all of the crate is used here")]
#![allow(missing_docs, missing_debug_implementations, reason = "the crate has them")]

#[path = "../../../sampler/src/clock.rs"]
mod real_clock;

mod clock {
    pub use crate::real_clock::{DEFAULT_HZ, Pace, fresh_seed};
    pub(crate) use crate::sync::time::monotonic_ns;
}
#[path = "../../../sampler/src/config.rs"]
pub mod config;
#[path = "../../../sampler/src/drain/mod.rs"]
pub mod drain;
#[path = "../../../sampler/src/engine/mod.rs"]
mod engine;
#[path = "../../../sampler/src/gate/mod.rs"]
pub mod gate;
#[path = "../../../sampler/src/guard.rs"]
pub mod guard;
#[path = "../../../sampler/src/interrupt.rs"]
pub mod interrupt;
#[path = "../../../sampler/src/keeper.rs"]
pub mod keeper;
#[path = "../../../sampler/src/maps.rs"]
mod maps;
#[path = "../../../sampler/src/outlet.rs"]
pub mod outlet;
#[path = "../../../sampler/src/source/mod.rs"]
pub mod source;
#[path = "../../../sampler/src/target/mod.rs"]
pub mod target;

#[path = "../../support/random.rs"]
mod random;

mod checked;
mod cpus;
mod rings;
mod sync;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use random::Random;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, Runner};

const SEEDS: Range<u64> = 0..500;

/// Sums of some recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Played {
    pub(crate) recorded: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) complete: u64,
    pub(crate) failed: u64,
}

fn play(seed: u64) -> Played {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    let played = Arc::new(Mutex::new(Played::default()));
    let sum = Arc::clone(&played);
    Runner::new(RandomScheduler::new_from_seed(seed, 1), config).run(move || {
        sync::time::reset();
        let mut chance = Random(seed);
        let one = if chance.one_in(2) { cpus::play(chance) } else { rings::play(chance) };
        *sum.lock().unwrap() = one;
    });
    *played.lock().unwrap()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| !word.starts_with('-') && !"every_seed".contains(word.as_str())) {
        return;
    }
    let wanted = std::env::var("LBR_SEEDS").ok();
    let seeds = wanted.map_or(SEEDS, |text| {
        let number = |text: &str| text.parse().expect("LBR_SEEDS: a number, or FROM..TO");
        match text.split_once("..") {
            Some((from, to)) => number(from)..number(to),
            None => number(&text)..number(&text) + 1,
        }
    });
    let mut sum = Played::default();
    for seed in seeds.clone() {
        let played = catch_unwind(AssertUnwindSafe(|| play(seed)));
        let Ok(played) = played else {
            eprintln!("LBR_SEEDS={seed} plays it again");
            std::process::exit(101);
        };
        sum.recorded += played.recorded;
        sum.delivered += played.delivered;
        sum.lost += played.lost;
        sum.complete += played.complete;
        sum.failed += played.failed;
    }
    println!("{sum:?}");
    if seeds == SEEDS {
        assert!(sum.delivered > 50_000 && sum.lost > 50, "{sum:?}");
        assert!(sum.complete > 20 && sum.failed > 50, "{sum:?}");
        assert_eq!(play(7), play(7), "a seed plays the same again");
    }
}
