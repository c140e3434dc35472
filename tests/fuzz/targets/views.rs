//! Any recording, after a byte that selects the view of `lbr report`, `lbr lint`, `lbr annotate` or
//! `lbr export`: the command finishes, whatever the recording contains.
#![no_main]

use std::io::Cursor;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use profile::annotate::{Syntax, annotate, hottest};
use profile::basic::Cuts;
use profile::callgraph::score;
use profile::export::{perf_data, pprof};
use profile::lint::Lint;
use profile::overview::OverviewCounter;
use profile::symbols::{DebugDirs, RunningKernel, Sources};
use profile::types::by_type;
use profile::{HotTable, Recording};

fn open(bytes: &[u8]) -> Option<Recording> {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).ok()
}

/// No symbols: a recording may name any file of the system, and reading those takes a thousand
/// times as long. Files are tested by the target `symbols`.
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
        debug: DebugDirs { symfs: Some(nowhere.clone()), ..DebugDirs::default() },
        kernel,
        kallsyms: None,
        vmlinux: None,
        jit: nowhere,
        lines: true,
    }
}

/// All of `lbr report --html`; `several`: the same recording twice.
fn overview(bytes: &[u8], several: bool) {
    let mut overview = OverviewCounter::new(several);
    for _ in 0..=u8::from(several) {
        let Some(mut recording) = open(bytes) else { return };
        if overview.recording(&mut recording, |_, _| {}).is_err() {
            return;
        }
    }
    let mut overview = overview.finish();
    overview.flow.maps.set_sources(sources());
    let flow = &mut overview.flow;
    for branch in overview.branches.iter().take(20) {
        for location in [branch.from_location, branch.to_location] {
            let _ = (flow.maps.name(location), flow.maps.frames(location));
        }
    }
    let _ = Cuts::of(&flow.blocks).basic_blocks();
    for hot in hottest(flow).iter().take(4) {
        let _ = annotate(flow, &hot.function, Syntax::Intel);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&option, bytes)) = bytes.split_first() else { return };
    let bit = |n: u8| option >> n & 1 == 1;
    let Some(mut recording) = open(bytes) else { return };
    let reopened = || open(bytes).expect("it was opened a moment ago");
    match option % 8 {
        0 | 1 => overview(bytes, bit(0)),
        2 => {
            let _ = Lint::check(&mut recording, u64::from(option) << 5, sources(), |_, _| {});
        }
        3 => {
            let _ = profile::loops::counter().count(&mut recording, |_, _| {});
        }
        4 => {
            let _ = profile::paths::counter().count(&mut recording, |_, _| {});
        }
        5 => {
            let graph =
                |stitch| profile::callgraph::counter(stitch).count(&mut reopened(), |_, _| {});
            if let (Ok(ours), Ok(stitched)) = (graph(false), graph(true)) {
                let _ = score(&ours, &stitched);
            }
        }
        6 => {
            if let Ok(mut table) = HotTable::count(&mut recording, |_, _| {}) {
                table.maps.set_sources(sources());
                let _ = (by_type(&table.branches, &mut table.maps), pprof(&mut table, true));
            }
        }
        _ if recording.is_perf_data() => {
            let _ = perf_data(&mut recording, bit(3), &mut std::io::sink(), |_, _| {});
        }
        _ => {}
    }
});
