//! Proves the test machine from inside its guest, through the kernel's own msr
//! driver: the chosen CPU's registers exist, all others of the LBR facilities
//! fault, reserved bits fault, CPUID tells of the CPU, and branches are
//! recorded where, how and when the documents say.
//!
//! Everything expected is written here by hand from those documents, not taken
//! from the model that is being checked. One line per fact; exit status 1 if
//! any of them does not hold.

mod cpus;
mod device;
mod graph;
mod known;
mod lbr;
mod random;
mod recording;
mod ring;

use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use std::fs::File;
use std::io;
use std::process::ExitCode;

use cpus::{CPUS, Cpu, Filter};
use device::{faulted, open, pin, read, write};

const PERF_CAPABILITIES: u32 = 0x345;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let Some(cpu) = CPUS.iter().find(|cpu| cpu.name.eq_ignore_ascii_case(&wanted)) else {
        let known: Vec<&str> = CPUS.iter().map(|cpu| cpu.name).collect();
        eprintln!("lbr-machine-check: no facts about `{wanted}`; there are: {}", known.join(" "));
        return ExitCode::from(2);
    };
    match Check::run(cpu) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("{}: FAILED: {error}", cpu.name);
            ExitCode::FAILURE
        }
    }
}

/// A check under way.
pub(crate) struct Check {
    cpu: &'static Cpu,
    msr: File,
    failed: u32,
}

impl Check {
    fn run(cpu: &'static Cpu) -> io::Result<u32> {
        pin(0)?;
        let msr = open(0)?;
        let mut check = Check { cpu, msr, failed: 0 };
        check.cpuid();
        check.registers();
        check.reserved_bits();
        check.one_ring_per_cpu()?;
        check.loop_fills_the_ring()?;
        check.kernel_is_recorded_unless_filtered()?;
        check.unfiltered_records_join()?;
        check.far_branches_are_recorded()?;
        check.interrupts_are_recorded()?;
        check.two_cpus_record_at_once()?;
        check.return_to_user_is_recorded_by_its_destination()?;
        if cpu.family == 6 {
            check.debug_exception_stops_recording()?;
        }
        check.lbr_reads_the_ring()?;
        check.restore()?;
        Ok(check.failed)
    }

    fn fact(&mut self, holds: bool, what: &str) {
        println!("{}: {}: {what}", self.cpu.name, if holds { "ok" } else { "FAILED" });
        self.failed += u32::from(!holds);
    }

    fn cpuid(&mut self) {
        let leaf_1 = cpuid(1);
        let (base_family, base_model) = (leaf_1.eax >> 8 & 0xF, leaf_1.eax >> 4 & 0xF);
        let family =
            if base_family == 0xF { base_family + (leaf_1.eax >> 20 & 0xFF) } else { base_family };
        let model = base_model | (leaf_1.eax >> 16 & 0xF) << 4;
        self.fact(
            (family, model) == (self.cpu.family, self.cpu.model),
            &format!("CPUID tells family {family:#x}, model {model:#x}"),
        );
        let pdcm = leaf_1.ecx >> 15 & 1 == 1;
        self.fact(pdcm == self.cpu.format.is_some(), &format!("CPUID.01H:ECX[15] is {pdcm}"));
        let arch = cpuid(7).edx >> 19 & 1 == 1;
        self.fact(
            arch == (self.cpu.format == Some(0x3F)),
            &format!("CPUID.07H:EDX[19], Architectural LBR, is {arch}"),
        );
        if arch {
            let leaf = cpuid(0x1C);
            // Bit n: depth 8 x (n + 1); 32 is the largest: bit 3.
            self.fact(leaf.eax & 0xFF & !7 == 8, &format!("CPUID.1CH:EAX is {:#x}", leaf.eax));
        }
        if self.cpu.family == 0x19 {
            let leaf = cpuid(0x8000_0022);
            self.fact(
                leaf.eax & 2 == 2 && leaf.ebx >> 4 & 0x3F == self.cpu.depth,
                &format!("CPUID.80000022H:EAX is {:#x}, EBX {:#x}", leaf.eax, leaf.ebx),
            );
        }
        let leaf = cpuid(0xA);
        self.fact(
            (leaf.eax & 0xFF, leaf.eax >> 8 & 0xFF) == self.cpu.perfmon,
            &format!("CPUID.0AH:EAX is {:#x}", leaf.eax),
        );
    }

    fn registers(&mut self) {
        let cpu = self.cpu;
        let read = self.read(PERF_CAPABILITIES);
        match cpu.format {
            Some(format) => self.fact(
                matches!(read, Ok(value) if value & 0x3F == format),
                &format!("IA32_PERF_CAPABILITIES reads {}, LBR_FMT {format:#x}", shown(&read)),
            ),
            None => self.fact(faulted(&read), "IA32_PERF_CAPABILITIES raises #GP"),
        }
        let mut present = vec![cpu.control];
        present.extend(cpu.tos);
        if let Filter::Select(select) = cpu.filter {
            present.push(select);
        }
        for i in 0..cpu.depth {
            present.push(cpu.from + i * cpu.stride);
            present.push(cpu.to + i * cpu.stride);
            present.extend(cpu.info.map(|info| info + i));
        }
        let refused: Vec<String> = present
            .iter()
            .filter(|msr| self.read(**msr).is_err() || self.write(**msr, 0).is_err())
            .map(|msr| format!("{msr:#x}"))
            .collect();
        self.fact(
            refused.is_empty(),
            &format!("{} registers can be read and cleared {}", present.len(), refused.join(" ")),
        );
        let there: Vec<String> = cpu
            .absent
            .iter()
            .filter(|msr| !faulted(&self.read(**msr)) || !faulted(&self.write(**msr, 0)))
            .map(|msr| format!("{msr:#x}"))
            .collect();
        self.fact(
            there.is_empty(),
            &format!("{} registers of others raise #GP {}", cpu.absent.len(), there.join(" ")),
        );
        // A user address: bits 63:47 zero.
        let ends = [(cpu.from, 0x1234_5678_9ABC), (cpu.to, 0x2345_6789_ABCD)];
        let kept = ends.iter().all(|(first, value)| {
            let last = first + (cpu.depth - 1) * cpu.stride;
            self.write(last, *value).is_ok() && self.read(last).is_ok_and(|got| got == *value)
        });
        self.fact(kept, "the last record keeps what is written");
        let apic_base = self.read(0x1B);
        self.fact(
            matches!(apic_base, Ok(value) if value & 0xF_FFFF_F000 == 0xFEE0_0000),
            &format!("IA32_APIC_BASE is the emulator's, {}", shown(&apic_base)),
        );
    }

    fn reserved_bits(&mut self) {
        let passed: Vec<String> = self
            .cpu
            .reserved
            .iter()
            .filter(|(msr, value)| {
                let before = self.read(*msr).ok();
                !faulted(&self.write(*msr, *value)) || self.read(*msr).ok() != before
            })
            .map(|(msr, value)| format!("{msr:#x}={value:#x}"))
            .collect();
        self.fact(
            passed.is_empty(),
            &format!("{} reserved bits raise #GP {}", self.cpu.reserved.len(), passed.join(" ")),
        );
    }

    fn one_ring_per_cpu(&mut self) -> io::Result<()> {
        let Ok(other) = open(1) else {
            println!("{}: skipped: one CPU only", self.cpu.name);
            return Ok(());
        };
        let from = self.cpu.from;
        write(&other, from, 0x1111)?;
        self.write(from, 0x2222)?;
        let apart = read(&other, from)? == 0x1111 && self.read(from)? == 0x2222;
        self.fact(apart, "CPU 0 and CPU 1 have a ring each");
        self.write(from, 0)?;
        write(&other, from, 0)
    }

    /// Clears the filter and the records.
    fn restore(&self) -> io::Result<()> {
        if let Filter::Select(select) = self.cpu.filter {
            self.write(select, 0)?;
        }
        self.clear()
    }

    fn read(&self, msr: u32) -> io::Result<u64> {
        read(&self.msr, msr)
    }

    fn write(&self, msr: u32, value: u64) -> io::Result<()> {
        write(&self.msr, msr, value)
    }
}

fn shown(result: &io::Result<u64>) -> String {
    match result {
        Ok(value) => format!("{value:#x}"),
        Err(error) => error.to_string(),
    }
}

fn cpuid(leaf: u32) -> CpuidResult {
    let highest = __cpuid(leaf & 0x8000_0000).eax;
    if leaf > highest {
        return CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    }
    __cpuid_count(leaf, 0)
}
