//! Writes the manual pages and the completions of shells into a folder, from
//! the same description of the command line that `--help` prints:
//!
//! ```sh
//! cargo run --example manual -- target/manual
//! ```

use std::path::PathBuf;

use clap_complete::Shell;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: manual FOLDER");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&folder)?;
    let mut command = lbr_commands::command().disable_help_subcommand(true);
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "lbr", &folder)?;
    }
    clap_mangen::generate_to(command, &folder)
}
