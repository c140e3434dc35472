//! Other people's recordings, which are not part of this repository.

use std::path::PathBuf;

use super::skip::skipped;

/// The corpus folder: `$LBR_CORPUS`, or `shared/corpus` next to the checkout. `None`, after a skip
/// message, if neither exists.
pub(crate) fn corpus() -> Option<PathBuf> {
    let named = std::env::var_os("LBR_CORPUS").map(PathBuf::from);
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    match named.into_iter().chain([beside]).find(|dir| dir.is_dir()) {
        Some(dir) => Some(dir),
        None => {
            skipped("no corpus (set LBR_CORPUS to its folder)");
            None
        }
    }
}
