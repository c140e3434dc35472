//! A flame graph as SVG, drawn by the crate `inferno`.

use inferno::flamegraph::{Options, from_reader};

/// Draws folded lines, at least one; `unit` is the unit of their counts.
///
/// # Errors
/// inferno's error: no lines.
pub fn flamegraph(folded: &[u8], title: &str, unit: &str) -> std::io::Result<Vec<u8>> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    // The same recording must give the same picture.
    options.deterministic = true;
    let mut svg = Vec::new();
    from_reader(&mut options, folded, &mut svg).map_err(std::io::Error::other)?;
    Ok(svg)
}
