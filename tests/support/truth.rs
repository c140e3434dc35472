//! Other tools' results for our recordings, which are not part of this repository.

use std::path::{Path, PathBuf};

use super::skip::{run_tool, skipped, tool};

/// The folder of the cases: `$LBR_TRUTH/cases`, or `shared/truth/cases` next to the checkout.
/// `None`, after a skip message, if neither exists.
pub(crate) fn cases() -> Option<PathBuf> {
    let named = std::env::var_os("LBR_TRUTH").map(PathBuf::from);
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/truth");
    let cases = named.into_iter().chain([beside]).map(|dir| dir.join("cases"));
    let found = cases.into_iter().find(|dir| dir.is_dir());
    if found.is_none() {
        skipped("no ground truth (set LBR_TRUTH to its folder)");
    }
    found
}

/// The contents of `PATH.xz` or `PATH`; `None` if neither or no xz exists.
pub(crate) fn unpacked(path: &Path) -> Option<Vec<u8>> {
    if path.is_file() {
        return std::fs::read(path).ok();
    }
    let packed = PathBuf::from(format!("{}.xz", path.display()));
    if !packed.is_file() {
        return None;
    }
    run_tool(tool("xz").arg("-dc").arg(packed)).map(|output| output.stdout)
}
