//! Machine code from assembly, by the system's `as`, and from digits.

use lbr_msr::text::AsText;
use std::io::{Seek, Write};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use lab::measure::run_tool;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

/// Maximum time to assemble.
const ASSEMBLING: Duration = Duration::from_secs(20);

/// Assembles 64-bit code. `what` names it in errors.
pub(super) fn assemble(source: &str, att: bool, what: &str) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("no temporary folder for the assembler")?;
    let file = folder.path().join("code.o");
    let path = sampler::target::find("as").map_err(|_| {
        anyhow!(
            "assembly needs the system's assembler, and there is no `as`: install binutils, or give \
             the bytes with --hex"
        )
    })?;
    let mut input = tempfile::tempfile().context("no temporary file for the assembler")?;
    input.write_all(source.as_bytes())?;
    input.write_all(b"\n")?;
    input.rewind()?;
    let mut command = Command::new(path);
    command.arg("--64").arg("-o").arg(&file);
    if !att {
        command.args(["-msyntax=intel", "-mnaked-reg"]);
    }
    let output = run_tool(command.arg("-").stdin(input), ASSEMBLING)
        .with_context(|| format!("{what} cannot be assembled by `as`"))?;
    if !output.status.success() {
        bail!("{what} cannot be assembled: {}", complaints(&output.stderr));
    }
    text_of(&std::fs::read(&file).context("the assembler left nothing to read")?, what)
}

/// The assembler's message, without its own names.
fn complaints(stderr: &[u8]) -> String {
    let text = stderr.as_text();
    let lines = text.lines().filter_map(|line| {
        let line = line.strip_prefix("{standard input}:")?;
        let (number, error) = line.split_once(": ")?;
        let error = error.strip_prefix("Error: ").unwrap_or(error);
        number.parse::<u32>().ok().map(|number| format!("line {number}: {error}"))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { text.trim().to_owned() } else { lines.join("; ") }
}

/// The code section, which must not need relocation.
fn text_of(bytes: &[u8], what: &str) -> anyhow::Result<Vec<u8>> {
    let file = object::File::parse(bytes).context("the assembler's object file")?;
    let text = file.section_by_name(".text").context("the assembler made no code section")?;
    if let Some((offset, relocation)) = text.relocations().next() {
        let name = match relocation.target() {
            RelocationTarget::Symbol(index) => file
                .symbol_by_index(index)
                .ok()
                .and_then(|symbol| Some(symbol.name().ok()?.to_owned()))
                .filter(|name| !name.is_empty()),
            _ => None,
        };
        let name = name.map_or("another section".to_owned(), |name| format!("`{name}`"));
        bail!(
            "{what} refers to {name} at +{offset:#x}, which is not in it: code is measured alone; \
             put data behind a jump, or into the memory that R14 points to, or measure a function \
             of an object file (--object)"
        );
    }
    Ok(text.data().context("the assembler's code section")?.to_vec())
}

/// Bytes from digits: spaces, commas, `0x` and `\x` between them are skipped.
pub(super) fn bytes(text: &str) -> anyhow::Result<Vec<u8>> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    let parts = words.flat_map(|word| word.split("\\x"));
    let digits: String = parts.map(|part| part.strip_prefix("0x").unwrap_or(part)).collect();
    if !digits.len().is_multiple_of(2) {
        bail!("--hex: an odd number of digits ({})", digits.len());
    }
    let pair = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok().filter(|_| !pair.starts_with('+'))
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    bytes.with_context(|| format!("--hex: `{text}` is not hexadecimal"))
}
