//! The plugin's entry point, and callbacks for the machine's start and end.
#![allow(unsafe_code, reason = "entry points and callbacks of QEMU's plugin interface are C")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::PoisonError;

use lbr_msr::soft::Fault;

use super::api::{self, Block};
use super::callbacks::diverted;
use super::machine::{MACHINE, MOST_VCPUS, Machine, Running, guarded, on_vcpu};
use super::model::Model;
use super::state::RegisterFile;
use super::translate::translate;
use super::vcpu::Vcpu;

/// The version of the plugin interface; QEMU looks for the symbol.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "QEMU finds it by its symbol")]
pub static qemu_plugin_version: c_int = api::VERSION;

/// The plugin's entry point. Returns 0 if installed.
///
/// # Safety
/// Called only by QEMU: `argv` holds `argc` strings.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "QEMU finds it by its symbol")]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: QEMU's argument vector.
        let given = unsafe { arguments(argc, argv) };
        let installed = prepare(&given).and_then(|machine| {
            MACHINE.set(machine).map_err(|_| "it can be loaded only once".to_owned())
        });
        if let Err(why) = installed {
            eprintln!("lbr guest plugin: {why}");
            return 1;
        }
        // SAFETY: the id that QEMU passed in.
        unsafe { api::register(id, vcpu_started, translated, diverted, ended) };
        0
    })
}

/// The plugin's arguments, `NAME=VALUE`; the value may be empty or absent.
///
/// # Safety
/// `argv` must hold `argc` zero-terminated strings.
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<(String, String)> {
    (0..usize::try_from(argc).unwrap_or(0))
        .map(|index| {
            // SAFETY: guaranteed by the caller.
            let word = unsafe { CStr::from_ptr(*argv.add(index)) }.to_string_lossy();
            match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (word.into_owned(), String::new()),
            }
        })
        .collect()
}

fn prepare(given: &[(String, String)]) -> Result<Machine, String> {
    const KNOWN: &str = "known arguments: cpu=FF_MM, lie=NAME, threads=N, idle=deep, pmu=off";
    let mut cpu = None;
    let mut pmu = true;
    let mut faults = Vec::<Fault>::new();
    let mut threads = 1;
    let mut deep_idle = false;
    for (name, value) in given {
        match (name.as_str(), value.as_str()) {
            ("cpu", _) => cpu = Some(value),
            ("pmu", "off") => pmu = false,
            ("lie", _) => faults.push(value.parse().map_err(|error| format!("{error}"))?),
            ("threads", _) => {
                threads = value
                    .parse()
                    .ok()
                    .filter(|threads| (1..=MOST_VCPUS as u32).contains(threads))
                    .ok_or_else(|| format!("threads={value}: expected 1 to {MOST_VCPUS}"))?;
            }
            ("idle", "deep") => deep_idle = true,
            _ => return Err(format!("unknown argument {name}={value}; {KNOWN}")),
        }
    }
    let cpu = cpu.ok_or("needs cpu=FF_MM, the CPU whose LBR the guest gets")?;
    let model = Model::new(cpu, pmu)?;
    model.set_faults(faults.into_iter().collect());
    Ok(Machine::new(model, threads, deep_idle))
}

extern "C" fn vcpu_started(index: c_uint, _: *mut c_void) {
    guarded(|| {
        let (Some(machine), Some(registers)) = (MACHINE.get(), RegisterFile::find()) else {
            eprintln!("lbr guest plugin: QEMU names no registers of virtual CPU {index}");
            return;
        };
        let Some(slot) = machine.vcpus.get(index as usize) else {
            eprintln!(
                "lbr guest plugin: virtual CPU {index} has no LBR: the maximum is {MOST_VCPUS}"
            );
            return;
        };
        let vcpu = Vcpu::new(&machine.model, index, machine.shared_select(index));
        // A vCPU that was unplugged and plugged in again starts afresh.
        let running = Running { vcpu, registers };
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    });
}

extern "C" fn translated(block: *mut c_void, _: *mut c_void) {
    guarded(|| {
        if let Some(machine) = MACHINE.get() {
            // SAFETY: the block that QEMU passed in.
            translate(machine, &unsafe { Block::new(block) });
        }
    });
}

extern "C" fn ended(_: *mut c_void) {
    guarded(|| {
        for index in 0..MOST_VCPUS as c_uint {
            let Some(counts) = on_vcpu(index, |_, running| running.vcpu.counts) else { continue };
            let line = format!(
                "lbr guest plugin: CPU {index}: {} branches retired while recording, \
                 {} registers read, {} written, {} #GP, {} interrupts and exceptions, \
                 {} of the performance monitor\n",
                counts.retired,
                counts.reads,
                counts.writes,
                counts.faults,
                counts.discontinuities,
                counts.pmis
            );
            // The line contains no zero byte.
            if let Ok(line) = CString::new(line) {
                api::log(&line);
            }
        }
    });
}
