//! Lists of CPUs in the kernel's format: `0-3,6`.

use std::str::FromStr;

/// CPUs in ascending order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuList(Vec<u32>);

/// No kernel has more CPUs (CONFIG_NR_CPUS of x86 ends at 8192): a longer
/// range is a typing error, not a list to build.
const MOST: u32 = 8192;

/// A text that is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list of CPUs, such as 0-3,6")]
pub(crate) struct NotCpus;

impl CpuList {
    /// The CPUs; there is at least one.
    pub(crate) fn cpus(&self) -> &[u32] {
        &self.0
    }
}

impl FromStr for CpuList {
    type Err = NotCpus;

    fn from_str(text: &str) -> Result<CpuList, NotCpus> {
        let number = |word: &str| {
            let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            word.parse::<u32>().ok().filter(|number| digits && *number < MOST).ok_or(NotCpus)
        };
        let mut cpus: Vec<u32> = Vec::new();
        for word in text.trim().split(',') {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(NotCpus);
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(CpuList(cpus))
    }
}

#[cfg(test)]
#[path = "../../tests/cli/unit/cpus.rs"]
mod tests;
