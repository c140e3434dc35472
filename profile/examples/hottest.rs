//! The hottest branches of a recording, perf.data or `perf script` output: `cargo run -p
//! lbr-profile --example hottest -- perf.data`.

use std::error::Error;
use std::path::PathBuf;

use lbr_profile::{HotTable, Recording};

fn main() -> Result<(), Box<dyn Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: hottest FILE")?);
    let mut recording = Recording::open(&path)?;
    let hot = HotTable::count(&mut recording, |_, _| {})?;
    for branch in hot.branches.iter().take(10) {
        let share = 100.0 * hot.share(branch);
        let rate = branch.mispredict_rate().map_or("-".to_owned(), |rate| format!("{rate:.3}"));
        println!("{share:6.2}%  mispredicted {rate}  {:#x} -> {:#x}", branch.from, branch.to);
    }
    Ok(())
}
