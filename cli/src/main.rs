//! The binary `lbr`.

use std::sync::Arc;

use lbr_commands::memory::Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

fn main() -> std::process::ExitCode {
    Memory::give_back();
    // A file that exceeds the size limit is an error, not the end of the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    lbr_commands::run(std::env::args_os())
}
