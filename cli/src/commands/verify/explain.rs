//! `lbr verify --explain CHECK`: what a check executes, why, and what would falsify it.

use std::io;
use std::path::Path;

use anyhow::anyhow;
use lab::verify::Spec;
use lbr_msr::soft::SoftCpu;
use serde::Serialize;

use crate::exit::{DONE, OrExit, Result, USAGE, done};
use crate::output::Output;
use crate::present::{Cell, Item, Out, joined, json, write_list};

/// Documented answers that are printed unless a CPU is named.
const SHOWN: usize = 4;

/// A documented answer and the CPUs that share it.
#[derive(Serialize)]
struct Answer {
    expected: String,
    source: String,
    #[serde(rename = "models")]
    cpus: Vec<String>,
}

/// Explains the check of this name, or lists all checks. With `cpu`, only that CPU's documented
/// answer is given. `json`: the file to write instead.
pub(super) fn run(id: &str, cpu: Option<&SoftCpu>, json: Option<&Path>) -> Result {
    let unknown = || anyhow!("no check is called {id:?}; lbr verify --explain list lists them");
    let listed = id == "list";
    let checks: Vec<&Spec> = Spec::all().filter(|check| listed || check.id == id).collect();
    let first = *checks.first().ok_or_else(unknown).or_exit(USAGE)?;
    if let Some(path) = json {
        let output = Output::new(path, [] as [&Path; 0])?;
        let mut text = Vec::new();
        checks.into_iter().try_for_each(|check| json_line(&mut text, check, cpu))?;
        output.write(&text)?;
        return Ok(DONE);
    }
    let mut out = Out::stdout();
    if listed {
        let item = |check: &Spec| (Cell::Empty, check.id.into(), check.what.into());
        write_list(&mut out, &checks.into_iter().map(item).collect::<Vec<Item>>())?;
    } else {
        text(&mut out, first, cpu)?;
    }
    done(&mut out)
}

/// The distinct documented answers of a CPU or of all that the software LBR can emulate, and the
/// number of CPUs that the check does not apply to.
fn answers(check: &Spec, cpu: Option<&SoftCpu>) -> (Vec<Answer>, Vec<String>) {
    let all: Vec<SoftCpu> = match cpu {
        Some(cpu) => vec![cpu.clone()],
        None => SoftCpu::all().collect(),
    };
    let (mut answers, mut absent): (Vec<Answer>, Vec<String>) = (Vec::new(), Vec::new());
    for cpu in all {
        match check.documented(&cpu) {
            Ok((expected, source)) => {
                let known = answers
                    .iter_mut()
                    .find(|answer| answer.expected == expected && answer.source == source);
                match known {
                    Some(known) => known.cpus.push(cpu.key),
                    None => answers.push(Answer { expected, source, cpus: vec![cpu.key] }),
                }
            }
            Err(why) => absent.push(why),
        }
    }
    answers.sort_by_key(|answer| std::cmp::Reverse(answer.cpus.len()));
    (answers, absent)
}

fn text(out: &mut Out<'_>, check: &Spec, cpu: Option<&SoftCpu>) -> io::Result<()> {
    out.line(format_args!("{}: {}", check.id, check.what))?;
    let mut items: Vec<Item> = Vec::new();
    let mut item = |name: &str, text: String| items.push((Cell::Empty, name.into(), text));
    item("run", check.run.into());
    item("why", check.why.into());
    item("falsified by", check.falsified.into());
    let (answers, absent) = answers(check, cpu);
    let shown = if answers.len() > SHOWN + 1 { SHOWN } else { answers.len() };
    for (at, answer) in answers.iter().take(shown).enumerate() {
        let mut cpus = joined(answer.cpus.iter().take(2), ", ");
        match answer.cpus.len().saturating_sub(2) {
            0 => {}
            more => cpus.push_str(&format!(" and {more} more")),
        }
        let name = if at == 0 { "documented" } else { "" };
        item(name, format!("{} [{}] ({cpus})", answer.expected, answer.source));
    }
    if answers.len() > shown {
        let rest = answers.len() - shown;
        item("", format!("{rest} more answers: --soft-cpu CPU prints one CPU's"));
    }
    match (cpu, absent.as_slice()) {
        (_, []) => {}
        (Some(_), [why, ..]) => item("documented", format!("not applicable: {why}")),
        (None, absent) => {
            let all = absent.len() + answers.iter().map(|answer| answer.cpus.len()).sum::<usize>();
            item("", format!("not applicable to {} of {all} CPUs", absent.len()));
        }
    }
    if !check.needs.is_empty() {
        item("depends on", check.needs.join(", "));
    }
    item("writes", if check.writes() { "yes: needs --write" } else { "no" }.into());
    write_list(out, &items)
}

fn json_line(out: &mut Vec<u8>, check: &Spec, cpu: Option<&SoftCpu>) -> io::Result<()> {
    let (documented, _) = answers(check, cpu);
    json::object!(out, {
        "check": check.id,
        "what": check.what,
        "run": check.run,
        "why": check.why,
        "falsified_by": check.falsified,
        "documented": documented,
        "needs": check.needs,
        "writes": check.writes(),
    })
}
