//! What `lbr` itself makes of the registers.

use std::io;
use std::process::Command;

use crate::Check;
use crate::cpus::Filter;
use crate::ring::Captured;

impl Check {
    /// Compares with the output of `lbr` for the same registers: the loop's branch in every slot;
    /// on CPUs without a filter, the kernel's entries.
    pub(crate) fn lbr_reads_the_ring(&mut self) -> io::Result<()> {
        let (run, _) = self.recorded(Captured::UserWithoutFar, 1000)?;
        let output = Command::new("lbr").args(["dump", "-C", "0", "--json"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let entries: Vec<(u64, u64)> = text
            .lines()
            .filter_map(|line| Some((address(line, "from")?, address(line, "to")?)))
            .collect();
        let right = entries
            .iter()
            .filter(|(from, to)| match self.cpu.filter {
                Filter::None => *to >> 63 == 1,
                Filter::Select(_) | Filter::Control => (*from, *to) == (run.branch, run.top),
            })
            .count();
        self.fact(
            output.status.success() && right == self.cpu.depth as usize && right == entries.len(),
            &format!(
                "lbr dump shows {right} of {} records as they are; status {}",
                self.cpu.depth, output.status
            ),
        );
        let facility = match self.cpu.format {
            None => "amd_lbr_v2",
            Some(0x3F) => "intel_arch",
            Some(_) => "intel_legacy",
        };
        let output = Command::new("lbr").args(["probe", "--json"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = format!("\"facility\":\"{facility}\",\"depth\":{},", self.cpu.depth);
        self.fact(
            output.status.success() && text.lines().count() == 1 && text.contains(&expected),
            &format!("lbr probe tells {facility}, depth {}", self.cpu.depth),
        );
        Ok(())
    }
}

/// An address of a line of JSON, `"NAME":"0x…"`.
fn address(line: &str, name: &str) -> Option<u64> {
    let (_, value) = line.split_once(&format!("\"{name}\":\"0x"))?;
    let (digits, _) = value.split_once('"')?;
    u64::from_str_radix(digits, 16).ok()
}
