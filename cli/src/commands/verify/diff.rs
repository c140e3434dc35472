//! `lbr verify --diff A B`: the differences between two reports.

use lbr_msr::text::AsText;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::Value;

use crate::exit::{DONE, FAILED, OrExit, Result, USAGE};
use crate::input;
use crate::output::Output;
use crate::present::{Out, joined, json};

/// A report as it was read: CPUs with one outcome, and their checks.
struct CpuGroup {
    head: Value,
    checks: Vec<Value>,
}

/// A check's name, and its results in both reports; `None` if it was not made.
type CheckPair<'a> = (&'a str, [Option<&'a Value>; 2]);

/// The titles of two groups that stand for the same kind of CPU, and the checks that differ.
struct GroupPair<'a> {
    titles: [String; 2],
    checks: Vec<CheckPair<'a>>,
}

/// Compares two reports. The exit status is 1 if they differ.
pub(super) fn run(one: &Path, other: &Path, json: Option<&Path>) -> Result {
    let output = json.map(|path| Output::new(path, [one, other])).transpose()?;
    let (first, second) = (read(one)?, read(other)?);
    let pairs = pair(&first, &second);
    let differ = pairs.iter().any(|pair| !pair.checks.is_empty());
    match output {
        Some(output) => output.stream(|out| write_json(out, &pairs).map(Ok))?,
        None => {
            let mut out = Out::stdout();
            write_text(&mut out, &pairs)?;
            out.flush()?;
        }
    }
    Ok(if differ { FAILED } else { DONE })
}

/// Maximum size of a report, in bytes.
const LONGEST: u64 = 16 << 20;
/// No machine has more kinds of CPU.
const MOST_GROUPS: usize = 256;

fn read(path: &Path) -> Result<Vec<CpuGroup>> {
    let wrong = || anyhow!("{} is not a report of lbr verify --json", path.as_text());
    let bytes = input::file::read(path, LONGEST)
        .with_context(|| format!("cannot read {}", path.as_text()))
        .or_exit(USAGE)?;
    let text = String::from_utf8(bytes).map_err(|_| wrong()).or_exit(USAGE)?;
    let mut groups: Vec<CpuGroup> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let value: Value = serde_json::from_str(line).map_err(|_| wrong()).or_exit(USAGE)?;
        if value.get("schema").is_some() {
            continue;
        }
        let more = value.get("facility").is_some() && groups.len() < MOST_GROUPS;
        match (value.get("check").is_some(), groups.last_mut()) {
            (true, Some(group)) => group.checks.push(value),
            (false, _) if more => groups.push(CpuGroup { head: value, checks: Vec::new() }),
            _ => return Err(wrong()).or_exit(USAGE),
        }
    }
    if groups.is_empty() {
        return Err(wrong()).or_exit(USAGE);
    }
    Ok(groups)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("-")
}

/// `06_5EH Skylake (CPUs 0-7)`.
fn title(group: &CpuGroup) -> String {
    let head = &group.head;
    let lies = match head.get("soft_lies").and_then(Value::as_array) {
        Some(lies) => {
            format!(", faults: {}", joined(lies.iter().filter_map(Value::as_str), ", "))
        }
        None => String::new(),
    };
    format!(
        "{}H {}, {} (CPUs {}){lies}",
        word(head, "model"),
        word(head, "uarch"),
        word(head, "registers"),
        word(head, "cpus")
    )
}

/// Pairs groups of the same core type, the rest in order.
fn pair<'a>(first: &'a [CpuGroup], second: &'a [CpuGroup]) -> Vec<GroupPair<'a>> {
    let core = |group: &CpuGroup| word(&group.head, "core_type").to_owned();
    let mut left: Vec<&CpuGroup> = second.iter().collect();
    let mut pairs = Vec::new();
    for one in first {
        let at = left.iter().position(|other| core(other) == core(one)).unwrap_or(0);
        let other = if left.is_empty() { second.last() } else { Some(left.remove(at)) };
        if let Some(other) = other {
            pairs.push(compare(one, other));
        }
    }
    if let Some(one) = first.last() {
        pairs.extend(left.into_iter().map(|other| compare(one, other)));
    }
    pairs
}

/// The checks of a group by their names; of several of one name, the first.
fn by_id(group: &CpuGroup) -> HashMap<&str, &Value> {
    group.checks.iter().rev().map(|check| (word(check, "check"), check)).collect()
}

fn compare<'a>(one: &'a CpuGroup, other: &'a CpuGroup) -> GroupPair<'a> {
    let (in_one, in_other) = (by_id(one), by_id(other));
    let mut ids: Vec<&str> = one.checks.iter().map(|check| word(check, "check")).collect();
    for check in &other.checks {
        let id = word(check, "check");
        let is_first = in_other.get(id).is_some_and(|first| std::ptr::eq(*first, check));
        if is_first && !in_one.contains_key(id) {
            ids.push(id);
        }
    }
    let differs = |(_, results): &CheckPair<'_>| match *results {
        [Some(one), Some(other)] => {
            let verdict = word(one, "verdict") == word(other, "verdict");
            // Counts vary from run to run: if both are as documented, the documented values are
            // compared.
            let key = if word(one, "verdict") == "as_documented" { "expected" } else { "found" };
            !verdict || one.get(key) != other.get(key)
        }
        _ => true,
    };
    let pairs = ids.into_iter().map(|id| (id, [&in_one, &in_other].map(|of| of.get(id).copied())));
    GroupPair { titles: [one, other].map(title), checks: pairs.filter(differs).collect() }
}

/// The result of a check, in a few words.
fn outcome(check: Option<&Value>) -> String {
    let Some(check) = check else { return "not checked".to_owned() };
    let verdict = word(check, "verdict").replace('_', " ");
    let more = match word(check, "verdict") {
        "as_documented" => word(check, "expected"),
        "differs" => word(check, "found"),
        _ => word(check, "why"),
    };
    format!("{verdict}: {more}")
}

fn write_text(out: &mut Out<'_>, pairs: &[GroupPair<'_>]) -> io::Result<()> {
    for GroupPair { titles: [one, other], checks } in pairs {
        out.line(format_args!("A  {one}"))?;
        out.line(format_args!("B  {other}"))?;
        if checks.is_empty() {
            out.line("no difference")?;
        }
        for (check, [one, other]) in checks {
            out.line(check)?;
            out.line(format_args!("  A  {}", outcome(*one)))?;
            out.line(format_args!("  B  {}", outcome(*other)))?;
        }
    }
    Ok(())
}

fn write_json(out: &mut impl Write, pairs: &[GroupPair<'_>]) -> io::Result<()> {
    json::object!(out, { "schema": 1 })?;
    for GroupPair { titles: [one, other], checks } in pairs {
        for (check, [a, b]) in checks {
            let of =
                |result: &Option<&Value>, key| result.and_then(|check| check.get(key)).cloned();
            json::object!(out, {
                "check": check,
                "a": one,
                "b": other,
                "a_verdict": of(a, "verdict"),
                "b_verdict": of(b, "verdict"),
                "a_expected": of(a, "expected"),
                "b_expected": of(b, "expected"),
                "a_found": of(a, "found"),
                "b_found": of(b, "found"),
            })?;
        }
    }
    Ok(())
}
