//! A flame graph as SVG, drawn by the crate `inferno`.

use inferno::flamegraph::{Options, from_reader};

/// Draws folded lines, of which there has to be one; `unit` is what they count.
///
/// # Errors
/// What inferno finds wrong: no lines.
pub fn flamegraph(folded: &[u8], title: &str, unit: &str) -> std::io::Result<Vec<u8>> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    // The same recording gives the same picture.
    options.deterministic = true;
    let mut svg = Vec::new();
    from_reader(&mut options, folded, &mut svg).map_err(std::io::Error::other)?;
    Ok(svg)
}
