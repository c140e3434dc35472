//! `[vdso]`: code that the kernel maps into every process, without a file.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Maps;
use super::files::{State, VDSO};
use crate::code::symbols::Module;

/// Maximum size: it has a page or two.
const MAX_LEN: u64 = 1 << 20;

impl Maps {
    /// The recorded vDSO: by build ID this process's own or one that perf saved; without one this
    /// process's own, if the kernel is the same.
    pub(super) fn open_vdso(&self, build_id: Option<&[u8]>) -> State {
        let sources = &self.sources;
        let own = || {
            let module = Module::in_memory(Path::new("/[vdso]"), own_bytes()?, &sources.debug);
            module.ok().map(Box::new)
        };
        let opened = match build_id {
            Some(id) => own()
                .filter(|module| {
                    module.build_id().is_some_and(|own| !super::differs(Some(id), Some(own)))
                })
                .or_else(|| {
                    let kept = sources.debug.vdso(id)?;
                    Module::open_with(&kept, &sources.debug).ok().map(Box::new)
                }),
            None => {
                let here = |kernel: &super::Kernel| kernel.recorded.check(&sources.kernel).is_ok();
                let same = !self.kernels.is_empty() && self.kernels.iter().all(here);
                same.then(own).flatten()
            }
        };
        opened.map_or(State::Silent, State::Open)
    }
}

/// This process's own.
fn own_bytes() -> Option<Vec<u8>> {
    let maps = BufReader::new(File::open("/proc/self/maps").ok()?);
    let line = maps.lines().map_while(Result::ok).find(|line| line.ends_with(VDSO))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let len = end.checked_sub(start).filter(|len| *len <= MAX_LEN)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}
