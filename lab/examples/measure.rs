//! The example of the README: instructions and branches of a closure.

use std::error::Error;
use std::hint::black_box;

use lbr_lab::measure::Session;

fn main() -> Result<(), Box<dyn Error>> {
    let sorted: Vec<u32> = (0..1000).collect();
    let mut session = Session::stepping()?;
    let measured = session.measure(|| {
        black_box(sorted.binary_search(black_box(&123)).ok());
    })?;
    if let Some(counts) = measured.counts {
        println!("{} instructions, {} branches taken", counts.instructions, counts.branches);
    }
    for block in &measured.blocks {
        println!("{:#x} .. {:#x}: {} times", block.entry, block.exit, block.n);
    }
    Ok(())
}
