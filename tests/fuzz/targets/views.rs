//! Any recording, through every view of `lbr report`, `lbr lint` and `lbr
//! annotate`: what they count comes out, whatever the recording says of itself.
#![no_main]

use std::io::Cursor;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use profile::Recording;
use profile::annotate::{Syntax, annotate, hottest};
use profile::basic::basic_blocks;
use profile::callgraph::score;
use profile::lint::Lint;
use profile::overview::OverviewCounter;
use profile::paths::Growth;
use profile::symbols::{DebugDirs, RunningKernel, Sources};

fn open(bytes: &[u8]) -> Option<Recording> {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).ok()
}

/// No names: a recording may name any file of the system, and reading those
/// takes a thousand times as long. What files do is the target `symbols`.
fn sources() -> Sources {
    let nowhere = PathBuf::from("/nonexistent");
    let kernel = RunningKernel {
        hostname: None,
        release: None,
        build_id: None,
        kallsyms: nowhere.clone(),
        modules: nowhere.clone(),
    };
    Sources {
        debug: DebugDirs { symfs: Some(nowhere.clone()), ..DebugDirs::none() },
        kernel,
        kallsyms: None,
        vmlinux: None,
        jit: nowhere,
        lines: true,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&option, bytes)) = bytes.split_first() else { return };
    let bit = |n: u8| option >> n & 1 == 1;
    let Some(mut recording) = open(bytes) else { return };
    let mut overview = OverviewCounter::new(bit(0));
    if overview.recording(&mut recording, |_, _| {}).is_err() {
        return;
    }
    // The same once more, as a second recording beside the first.
    if bit(0)
        && let Some(mut again) = open(bytes)
    {
        let _ = overview.recording(&mut again, |_, _| {});
    }
    let mut overview = overview.finish();
    overview.flow.maps.set_sources(sources());
    let flow = &mut overview.flow;
    for branch in overview.branches.iter().take(20) {
        for location in [branch.from_location, branch.to_location] {
            let _ = (flow.maps.name(location), flow.maps.frames(location));
        }
    }
    let _ = basic_blocks(&flow.blocks);
    for hot in hottest(flow).iter().take(4) {
        let _ = annotate(flow, &hot.function, Syntax::Intel);
    }

    let reopened = || open(bytes).expect("it was opened a moment ago");
    let stride = u64::from(option) << 5;
    let _ = Lint::check(&mut reopened(), stride, sources(), 1, |_, _| {});
    if let Ok(found) = profile::loops::finder().count(&mut reopened(), |_, _| {}) {
        let _ = found.counter().count(&mut reopened(), |_, _| {});
    }
    let growth = Growth { least: f64::from(option >> 2) / 63.0, cross_calls: bit(1) };
    if let Ok(found) = profile::paths::finder().count(&mut reopened(), |_, _| {}) {
        let _ = found.counter(growth).count(&mut reopened(), |_, _| {});
    }
    let graph = |stitch| profile::callgraph::counter(stitch).count(&mut reopened(), |_, _| {});
    if let (Ok(ours), Ok(stitched)) = (graph(false), graph(true)) {
        let _ = score(&ours, &stitched);
    }
});
