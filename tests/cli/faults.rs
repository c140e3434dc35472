//! Failing register accesses, one in each run: whatever the command was doing, it ends by itself
//! with a documented status, the registers are restored, and the recording is readable.
//!
//! Only a few by default; scripts/faults sets `LBR_FAULTS` to a number of faults per command or
//! `all`: each access with each fault. It then prints a table.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use lbr_msr::soft::SoftCpu;
use lbr_msr::{Msr, MsrWrite};
use nix::libc::{EIO, ENXIO, EPERM};
use profile::{Item, Recording};

use crate::support::decoded::sample_of;
use crate::support::lbr::{PROGRAM, alone, lbr, text};
use crate::support::programs::{BARE, Program, build};
use crate::support::registers::{Fault, Ran, Registers, STEP, may_record_beside};

const DEBUGCTL: Msr = Msr(0x1D9);
const DEPTH: Msr = Msr(0x14CF);

const FAULTS: [Fault; 6] = [
    Fault::Errno(EIO),
    Fault::Errno(EPERM),
    Fault::Errno(ENXIO),
    Fault::Short,
    Fault::Offline,
    Fault::Kill,
];

/// The registers after a command without a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// All registers unchanged.
    All,
    /// An empty ring, otherwise unchanged.
    NoRecords,
    /// Recording off, the values of other users unchanged.
    Off,
}

struct Case {
    name: &'static str,
    args: &'static [&'static str],
    leaves: Leaves,
}

/// Every command that accesses registers; PROGRAM is one to run, FILE one to write.
const CASES: [Case; 11] = [
    case("probe", &["probe", "--json"], Leaves::All),
    case("doctor", &["doctor"], Leaves::All),
    case("dump", &["dump", "-C", "0"], Leaves::All),
    case("dump --arm", &["dump", "-C", "0", "--arm", "any,u", "--for", "2"], Leaves::NoRecords),
    case(
        "dump --arm -- CMD",
        &["dump", "-C", "0", "--arm", "any,u", "--", "PROGRAM"],
        Leaves::NoRecords,
    ),
    case(
        "record --placement same",
        &["record", "-C", "0", "--placement", "same", "-F", "200", "-o", "FILE", "--", "PROGRAM"],
        Leaves::NoRecords,
    ),
    case(
        "record --placement beside",
        &["record", "-C", "0", "--placement", "beside", "-F", "200", "-o", "FILE", "--", "PROGRAM"],
        Leaves::NoRecords,
    ),
    case(
        "time",
        &["time", "-C", "0", "--repeat", "2", "--warm-up", "0", "--hex", "90"],
        Leaves::NoRecords,
    ),
    case("verify", &["verify", "-C", "0"], Leaves::All),
    case("verify --write", &["verify", "-C", "0", "--write"], Leaves::All),
    case("disarm", &["disarm", "-C", "0"], Leaves::Off),
];

const fn case(name: &'static str, args: &'static [&'static str], leaves: Leaves) -> Case {
    Case { name, args, leaves }
}

/// Results of many runs.
#[derive(Default)]
struct Tally {
    runs: u32,
    panics: u32,
    hangs: u32,
    /// Runs with an undocumented status, or without a message.
    unsaid: u32,
    /// Runs that did not restore a register.
    changed: u32,
    /// Runs with an unreadable file, or one that lacks branches without reporting it.
    lost: u32,
    /// The first failure, as text.
    found: Vec<String>,
}

impl Tally {
    fn note(&mut self, count: fn(&mut Tally) -> &mut u32, what: impl Display) {
        *count(self) += 1;
        self.found.push(what.to_string());
    }
}

/// A CPU, a program to record on it, and a folder for recordings.
struct Bench<'a> {
    cpu: &'static str,
    program: &'a Program,
    folder: tempfile::TempDir,
}

impl Bench<'_> {
    fn new<'a>(cpu: &'static str, program: &'a Program) -> Bench<'a> {
        Bench { cpu, program, folder: tempfile::tempdir().unwrap() }
    }

    /// A CPU with other users' values in its registers.
    fn registers(&self, leaves: Leaves) -> Registers {
        let mut registers = Registers::new(&SoftCpu::preset(self.cpu).unwrap());
        let (first, end) = (self.program.at("places"), self.program.at("places_end"));
        registers.code = (first, (end - first) / STEP);
        // BTF is set by a debugger.
        registers.soft.write(DEBUGCTL, 2).unwrap();
        let map = SoftCpu::preset(self.cpu).unwrap().caps.registers;
        if let Some(select) = map.select.filter(|select| *select != map.control) {
            registers.soft.write(select, 4).unwrap();
        }
        if leaves == Leaves::Off {
            let on = map.enable | if map.control == DEBUGCTL { 2 } else { 0 };
            registers.soft.write(map.control, on).unwrap();
        } else {
            registers.soft.write(map.from, 0x1234).unwrap();
        }
        registers
    }

    /// Runs a case once, and returns its failures.
    fn run(&self, case: &Case, fault: Option<(u32, Fault)>, tally: &mut Tally) -> Option<u32> {
        let mut registers = self.registers(case.leaves);
        let before = registers.held();
        let file = self.folder.path().join("perf.data");
        let _ = std::fs::remove_file(&file);
        let mut command = alone(Command::new(PROGRAM));
        let [name, rest @ ..] = case.args else { return None };
        command.arg(name).arg("--msr-root").arg(registers.root());
        if *name != "probe" && *name != "doctor" {
            command.args(["--backend", "msr"]);
        }
        command.args(rest.iter().map(|word| match *word {
            "PROGRAM" => self.program.path.as_path(),
            "FILE" => file.as_path(),
            word => Path::new(word),
        }));
        let piped = std::process::Stdio::piped;
        command.stdout(piped()).stderr(piped());
        let ran = registers.run(command, fault)?;
        let what = format!("{} on {}, {fault:?}", case.name, self.cpu);
        tally.runs += 1;
        self.judge_end(&ran, fault, &what, tally);
        if !matches!(fault, Some((_, Fault::Offline))) {
            let after = registers.held();
            if let Some(changed) = changed(case.leaves, &before, &after, &ran) {
                let said = text(&ran.output.stderr);
                tally.note(|tally| &mut tally.changed, format_args!("{what}: {changed}: {said}"));
            }
        }
        if file.exists()
            && let Err(why) = self.readable(&file)
        {
            tally.note(|tally| &mut tally.lost, format_args!("{what}: {why}"));
        }
        Some(ran.accesses)
    }

    fn judge_end(&self, ran: &Ran, fault: Option<(u32, Fault)>, what: &str, tally: &mut Tally) {
        let said = text(&ran.output.stderr);
        if said.contains("panicked") {
            tally.note(|tally| &mut tally.panics, format_args!("{what}: {said}"));
        }
        if ran.hung {
            tally.note(|tally| &mut tally.hangs, format_args!("{what}: {said}"));
        }
        let documented = match (ran.output.status.code(), fault) {
            (Some(0), _) => true,
            // The reports of doctor and verify are their results.
            (Some(1 | 3 | 4), _) => said.contains("lbr: ") || !ran.output.stdout.is_empty(),
            (None, Some((_, Fault::Kill))) => true,
            _ => false,
        };
        if !documented {
            let status = ran.output.status;
            tally.note(|tally| &mut tally.unsaid, format_args!("{what}: {status}: {said}"));
        }
    }

    /// Whether a recording is readable and reports everything it lacks: each branch comes from code
    /// after the previous one.
    fn readable(&self, file: &Path) -> Result<(), String> {
        let (first, end) = (self.program.at("places"), self.program.at("places_end"));
        let mut recording = Recording::open(file).map_err(|error| error.to_string())?;
        let mut newest = None;
        while let Some(item) = recording.next_item().map_err(|error| error.to_string())? {
            let Item::Stack(stack) = item else { continue };
            let sample = sample_of(&stack);
            let joined = sample.stack.integrity.head == lbr_msr::record::Head::Joined;
            let mut before = newest.filter(|_| joined);
            for entry in sample.stack.entries.iter().rev() {
                let from = entry.from;
                let wanted = before.map(
                    |before: u64| {
                        if before + STEP == end { first } else { before + STEP }
                    },
                );
                if wanted.is_some_and(|wanted| wanted != from) {
                    return Err(format!("{from:#x} follows {before:x?}"));
                }
                before = Some(from);
            }
            newest = before.or(newest);
        }
        let script = lbr(&["script", "-i", file.to_str().unwrap()]);
        if script.status.success() { Ok(()) } else { Err(text(&script.stderr)) }
    }
}

type Held = [std::collections::BTreeMap<u32, u64>; 2];

/// The registers that differ from before.
fn changed(leaves: Leaves, before: &Held, after: &Held, ran: &Ran) -> Option<String> {
    let [shared, records] = after;
    let is_empty = records.values().all(|value| *value == 0);
    let held = match leaves {
        Leaves::All => before == after,
        // Unchanged, if nothing was written yet.
        Leaves::NoRecords => *shared == before[0] && (is_empty || *records == before[1]),
        Leaves::Off => {
            let debugctl = shared.get(&DEBUGCTL.0).is_some_and(|value| value & !1 == 2);
            // The depth stays set when recording is switched off.
            let is_off = shared.iter().all(|(msr, value)| *msr == DEPTH.0 || value & !2 == 0);
            debugctl && (is_off && is_empty || ran.output.status.code() != Some(0))
        }
    };
    let hexadecimal = |held: &Held| {
        let list = held.iter().flatten().filter(|(_, value)| **value != 0);
        list.map(|(msr, value)| format!("{msr:x}={value:x} ")).collect::<String>()
    };
    (!held).then(|| format!("before {}; after {}", hexadecimal(before), hexadecimal(after)))
}

/// Number of programs to run in parallel: they mostly wait.
const WORKERS: usize = 4;

/// Makes register accesses of a command fail on a CPU: each with each fault, or about `most`.
/// `None` if it cannot be tried here.
fn campaign(
    cpu: &'static str,
    program: &Program,
    case: &Case,
    most: Option<usize>,
) -> Option<(u32, Tally)> {
    let mut tally = Tally::default();
    let accesses = Bench::new(cpu, program).run(case, None, &mut tally)?;
    let each = (1..=accesses).flat_map(|at| FAULTS.map(|fault| (at, fault)));
    // Odd, so that faults and accesses are mixed.
    let stride = most.map_or(1, |most| (each.clone().count() / most).max(1) | 1);
    let faults = Mutex::new(each.step_by(stride));
    let next = || faults.lock().unwrap().next();
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let work = || {
            let mut tally = Tally::default();
            let bench = Bench::new(cpu, program);
            while let Some(fault) = next() {
                bench.run(case, Some(fault), &mut tally);
            }
            tally
        };
        let workers = [(); WORKERS].map(|()| scope.spawn(work));
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    for Tally { runs, panics, hangs, unsaid, changed, lost, mut found } in tallies {
        tally.runs += runs;
        tally.panics += panics;
        tally.hangs += hangs;
        tally.unsaid += unsaid;
        tally.changed += changed;
        tally.lost += lost;
        tally.found.append(&mut found);
    }
    Some((accesses, tally))
}

#[test]
fn a_failed_access_leaves_other_registers_unchanged() {
    let asked = std::env::var("LBR_FAULTS").ok();
    let most = asked.as_ref().map_or(Some(7), |most| most.parse().ok());
    let (mut out, cpus): (Box<dyn Write>, &[_]) = match asked {
        Some(_) => (Box::new(std::io::stdout()), &["06_5E", "06_8F", "19_61"]),
        None => (Box::new(std::io::sink()), &["06_5E"]),
    };
    let head = "CPU    command                    accesses   runs panics hangs unsaid registers  lost seconds";
    let _ = writeln!(out, "{head}");
    let Some(program) = build("waiting.S", BARE) else { return };
    let mut found = Vec::new();
    for cpu in cpus {
        for case in &CASES {
            if case.name.contains("beside") && !may_record_beside() {
                continue;
            }
            let since = Instant::now();
            let tried = campaign(cpu, &program, case, most);
            let Some((accesses, mut tally)) = tried else { return };
            let Tally { runs, panics, hangs, unsaid, changed, lost, .. } = tally;
            let seconds = since.elapsed().as_secs_f64();
            let _ = writeln!(
                out,
                "{cpu}  {:26} {accesses:8} {runs:6} {panics:6} {hangs:5} {unsaid:6} {changed:9} \
                 {lost:5} {seconds:7.0}",
                case.name,
            );
            for what in &tally.found {
                let _ = writeln!(out, "       {}", what.trim_end());
            }
            found.append(&mut tally.found);
        }
    }
    let first = &found[..found.len().min(20)];
    assert!(found.is_empty(), "{} found, such as:\n{}", found.len(), first.join("\n"));
}
