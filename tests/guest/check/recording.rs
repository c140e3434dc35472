//! Checks which branches are recorded, and how.
#![allow(unsafe_code, reason = "a child raises a debug exception")]

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::Check;
use crate::cpus::{Cycles, Filter};
use crate::known;
use crate::ring::{Captured, LOW_48};

impl Check {
    /// Every slot must hold the loop's branch.
    pub(crate) fn loop_fills_the_ring(&mut self) -> io::Result<()> {
        if self.cpu.filter == Filter::None {
            return Ok(());
        }
        let (run, records) = self.recorded(Captured::UserWithoutFar, 1000)?;
        let hits = records.iter().filter(|record| record.is(run.branch, run.top)).count();
        self.fact(
            hits == records.len() && hits == self.cpu.depth as usize,
            &format!("a loop of 1,000 fills {hits} of {} records", self.cpu.depth),
        );
        // Modelled: one cycle per instruction; the loop has two.
        let cycles: Vec<Option<u64>> = records.iter().map(|record| self.cycles(record)).collect();
        let expected = (self.cpu.cycles != Cycles::None).then_some(2);
        self.fact(
            cycles.iter().all(|cycles| *cycles == expected),
            &format!(
                "its records tell the modelled cycles: {:?}",
                cycles.first().copied().flatten()
            ),
        );
        if self.cpu.cycles == Cycles::InfoIfBit60 {
            // Type 0 is a conditional branch.
            let conditional =
                records.iter().all(|record| record.info.is_some_and(|i| i >> 56 & 0xF == 0));
            self.fact(conditional, "they tell the type of a conditional branch");
        }
        Ok(())
    }

    pub(crate) fn kernel_is_recorded_unless_filtered(&mut self) -> io::Result<()> {
        let (run, records) = self.recorded(Captured::Everything, 1000)?;
        let own = records.iter().filter(|record| record.is(run.branch, run.top)).count();
        let kernel = records.iter().filter(|record| record.ends_in_kernel()).count();
        self.fact(
            own == 0 && kernel == records.len(),
            &format!(
                "unfiltered, the kernel's way out overwrites all: {kernel} of {} end there",
                self.cpu.depth
            ),
        );
        Ok(())
    }

    /// Without a filter all branches are recorded, including those of the kernel, interrupts and
    /// returns: each record starts shortly after the target of the previous one.
    pub(crate) fn unfiltered_records_join(&mut self) -> io::Result<()> {
        /// Maximum length of code without a taken branch.
        const LONGEST_RUN: u64 = 4096;
        let mut torn = Vec::new();
        let mut pairs = 0;
        for _ in 0..100 {
            let (_, records) = self.recorded(Captured::Everything, 1)?;
            for pair in records.windows(2) {
                let [newer, older] = pair else { continue };
                pairs += 1;
                let run = (newer.from & LOW_48).wrapping_sub(older.to & LOW_48);
                if run >= LONGEST_RUN {
                    torn.push(format!("{:#x} then {:#x}", older.to, newer.from));
                }
            }
        }
        self.fact(
            torn.is_empty() && pairs > 0,
            &format!("{} of {pairs} pairs of records do not join {}", torn.len(), torn.join(", ")),
        );
        Ok(())
    }

    /// SDM 17.4.8 and Table 17-11: the filter tests the ring of the target, so the first record is
    /// the return from the driver.
    pub(crate) fn return_to_user_is_recorded_by_its_destination(&mut self) -> io::Result<()> {
        if self.cpu.filter == Filter::None {
            return Ok(());
        }
        let mut last = String::new();
        // An interrupt adds its own return, so one success in several attempts is enough.
        for _ in 0..20 {
            let (run, records) = self.recorded(Captured::User, 3)?;
            let [newest, older, oldest, ..] = records.as_slice() else { continue };
            let came_from_kernel = match self.cpu.filter {
                // Architectural LBR hides the source.
                Filter::Control => oldest.from == u64::MAX,
                _ => oldest.from >> 47 & 1 == 1,
            };
            last = format!("{:#x} to {:#x}", oldest.from, oldest.to);
            if newest.is(run.branch, run.top)
                && older.is(run.branch, run.top)
                && came_from_kernel
                && oldest.to & LOW_48 == run.start
            {
                self.fact(true, &format!("the return to user code is recorded: {last}"));
                return Ok(());
            }
        }
        self.fact(false, &format!("no record of the return to user code: {last}"));
        Ok(())
    }

    /// System calls, a page fault and their returns, in order: FROM of a fault is the faulting
    /// instruction, to which it returns.
    pub(crate) fn far_branches_are_recorded(&mut self) -> io::Result<()> {
        if self.cpu.filter == Filter::None {
            return Ok(());
        }
        let kernel = |address: u64| address >> 47 & 1 == 1;
        let mut last = String::new();
        // An interrupt adds two records, so one success in several attempts is enough.
        for _ in 0..20 {
            self.clear()?;
            let on = self.write_filter(Captured::Far)?;
            let run = known::run_load(self.msr.as_raw_fd(), self.cpu.control, on, 0)?;
            let records = self.ring()?;
            let [call, back, fault, first, rest, ..] = records.as_slice() else { continue };
            let user = |address: u64, expected: u64| address & LOW_48 == expected;
            if user(call.from, run.end)
                && kernel(call.to)
                && kernel(back.from)
                && user(back.to, run.load)
                && user(fault.from, run.load)
                && kernel(fault.to)
                && kernel(first.from)
                && user(first.to, run.start)
                && rest.from & LOW_48 == 0
            {
                self.fact(true, "a page fault, a system call and both returns are recorded");
                return Ok(());
            }
            last = records
                .iter()
                .take(6)
                .map(|record| format!("{:#x} to {:#x}; ", record.from, record.to))
                .collect();
        }
        self.fact(false, &format!("far branches are not recorded as they ran: {last}"));
        Ok(())
    }

    /// The timer interrupts an empty loop: each interrupt and its return have addresses in the
    /// loop.
    pub(crate) fn interrupts_are_recorded(&mut self) -> io::Result<()> {
        if self.cpu.filter == Filter::None {
            return Ok(());
        }
        self.clear()?;
        let on = self.write_filter(Captured::Far)?;
        let fd = self.msr.as_raw_fd();
        let run = known::run_loop(fd, self.cpu.control, on, 0, 20_000_000)?;
        let records = self.ring()?;
        let inside = |address: u64| (run.top..=run.branch).contains(&(address & LOW_48));
        let entered = records.iter().filter(|record| inside(record.from)).count();
        let left = records.iter().filter(|record| inside(record.to)).count();
        self.fact(
            entered > 0 && entered.abs_diff(left) <= 1,
            &format!("{entered} interrupts of a loop and {left} returns to it are recorded"),
        );
        Ok(())
    }

    /// SDM 17.4.2: a debug exception clears the enable bit.
    pub(crate) fn debug_exception_stops_recording(&mut self) -> io::Result<()> {
        let on = self.write_filter(Captured::User)?;
        self.write(self.cpu.control, on)?;
        // SAFETY: one thread; the child executes one instruction and dies.
        let child = match unsafe { fork() }? {
            ForkResult::Child => {
                // SAFETY: INT1 raises a debug exception, which ends the child.
                unsafe {
                    core::arch::asm!(".byte 0xf1");
                    libc::_exit(0)
                }
            }
            ForkResult::Parent { child } => child,
        };
        let died = matches!(waitpid(child, None)?, WaitStatus::Signaled(_, Signal::SIGTRAP, _));
        let after = self.read(self.cpu.control)?;
        self.write(self.cpu.control, 0)?;
        self.fact(
            died && after & self.cpu.enable == 0,
            &format!("a debug exception turns recording off: control is {after:#x}"),
        );
        Ok(())
    }
}
