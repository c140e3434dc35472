//! Symbols of the kernel and of the code that it maps into processes: from a list, from the kernel's
//! ELF file, whose symbols and lines are valid for any load address, and from `[vdso]`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Mappings, Maps, differs};
use crate::code::hex;
use crate::code::symbols::{
    ListedSymbols, Module, RunningKernel, SymbolError, SymbolExtent, build_id,
};

/// The name of code that the kernel maps into processes.
pub(super) const VDSO: &str = "[vdso]";
/// Maximum size of the vDSO: it has a page or two.
const MAX_LEN: u64 = 1 << 20;

/// The kernel of a recording.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub(super) mappings: Mappings,
    pub(super) recorded: RecordedKernel,
}

/// The identity of a recorded kernel, as far as the recording contains it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedKernel {
    pub(super) release: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) build_id: Option<Vec<u8>>,
}

impl RecordedKernel {
    /// Whether it is the running kernel, by build ID, or else by release.
    pub(super) fn check(&self, running: &RunningKernel) -> Result<(), SymbolError> {
        let other =
            |recorded: String, running: String| Err(SymbolError::OtherKernel { recorded, running });
        match (&self.build_id, &running.build_id) {
            (Some(recorded), Some(running)) if recorded == running => Ok(()),
            (Some(recorded), Some(running)) => {
                let id = |id: &[u8]| format!("build id {}", hex(id));
                match &self.release {
                    Some(release) => other(format!("{release}, {}", id(recorded)), id(running)),
                    None => other(id(recorded), id(running)),
                }
            }
            _ => match (&self.release, &running.release) {
                (Some(recorded), Some(running)) if recorded == running => Ok(()),
                (Some(recorded), Some(running)) => other(recorded.clone(), running.clone()),
                _ => Err(SymbolError::UnknownKernel),
            },
        }
    }

    /// The recorded machine if it is not this one: another host name, or else another kernel
    /// release.
    pub(super) fn machine_other_than(&self, running: &RunningKernel) -> Option<String> {
        let other = |recorded: &Option<String>, here: &Option<String>| {
            let both = recorded.as_ref().zip(here.as_ref());
            both.filter(|(recorded, here)| recorded != here).map(|(recorded, _)| recorded.clone())
        };
        let name =
            other(&self.hostname, &running.hostname).map(|name| format!("the machine {name}"));
        let release = || Some(format!("Linux {}", other(&self.release, &running.release)?));
        name.or_else(release)
    }

    /// Whether it is also the kernel of another recording.
    pub(super) fn is(&self, other: &RecordedKernel) -> bool {
        match (&self.build_id, &other.build_id) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self.release.is_some() && self == other,
            _ => false,
        }
    }
}

/// The functions of the kernel or one of its modules, or generated ones.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) symbols: Arc<ListedSymbols>,
    /// "" is the kernel, and generated code.
    pub(super) module: String,
    /// Add this to offsets to get addresses in the list.
    pub(super) base: u64,
}

impl Listed {
    /// Symbols whose offsets are addresses.
    pub(super) fn of_addresses(symbols: ListedSymbols) -> Listed {
        Listed { symbols: Arc::new(symbols), module: String::new(), base: 0 }
    }

    /// The function at an offset: its name, its offsets, its address.
    pub(super) fn covering(&self, offset: u64) -> Option<(String, Range<u64>, u64)> {
        let at = self.base.wrapping_add(offset);
        let SymbolExtent { name, addr, end } = self.symbols.at(&self.module, at)?;
        // The last has no end: assume that it covers the requested offset.
        let end = end.map_or(offset.wrapping_add(1), |end| end.wrapping_sub(self.base));
        Some((name.to_owned(), addr.wrapping_sub(self.base)..end, addr))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SymbolExtent<'_>> {
        self.symbols.of_module(&self.module)
    }
}

/// A kernel's ELF file.
#[derive(Debug)]
pub(super) struct Vmlinux {
    pub(super) module: Box<Module>,
    /// Add this to offsets to get addresses in the file: the address of its reference symbol, so
    /// the load address does not matter.
    pub(super) base: u64,
}

impl Vmlinux {
    /// The function at an offset: its name as in the file, its offsets, its address in the file.
    pub(super) fn function_at(&self, offset: u64) -> Option<(&str, Range<u64>, u64)> {
        let (name, range) = self.module.function_at(self.base.wrapping_add(offset))?;
        Some((name, self.offsets(&range), range.start))
    }

    /// Every function: its name as in the file, its offsets, its address in the file.
    pub(super) fn functions(&self) -> impl Iterator<Item = (&str, Range<u64>, u64)> {
        self.module.functions().map(|(name, range)| (name, self.offsets(&range), range.start))
    }

    fn offsets(&self, range: &Range<u64>) -> Range<u64> {
        range.start.wrapping_sub(self.base)..range.end.wrapping_sub(self.base)
    }
}

impl Maps {
    /// The ELF file of a recorded kernel, if found or given.
    pub(super) fn vmlinux(
        &self,
        recording: u32,
        reference: &str,
    ) -> Result<Option<Vmlinux>, SymbolError> {
        let kernel = self.kernels.get(recording as usize);
        let recorded = kernel.map(|kernel| &kernel.recorded);
        let module = match &self.sources.vmlinux {
            Some(given) => {
                let module = Module::open_with(given, &self.sources.debug)?;
                let id = recorded.and_then(|recorded| recorded.build_id.as_deref());
                if differs(id, module.build_id()) {
                    return Err(SymbolError::OtherVmlinux(given.clone()));
                }
                module
            }
            None => match recorded.and_then(|recorded| self.found_vmlinux(recorded)) {
                Some(module) => module,
                None => return Ok(None),
            },
        };
        let base = module.functions().find(|(name, _)| *name == reference);
        match base.map(|(_, range)| range.start) {
            Some(base) => Ok(Some(Vmlinux { module: Box::new(module), base })),
            None if self.sources.vmlinux.is_some() => module.find(reference).map(|_| None),
            None => Ok(None),
        }
    }

    /// The file in one of the usual places. Only a build ID proves that it is the right one:
    /// kernels of one release are built repeatedly.
    fn found_vmlinux(&self, recorded: &RecordedKernel) -> Option<Module> {
        let running = &self.sources.kernel;
        let here = recorded.check(running).is_ok();
        let running_id = running.build_id.as_ref().filter(|_| here);
        let id = recorded.build_id.as_ref().or(running_id)?;
        let release = recorded.release.as_ref().or(running.release.as_ref().filter(|_| here));
        let mut paths = release.map(|release| self.usual_places(release)).unwrap_or_default();
        paths.extend(self.sources.debug.by_build_id(id));
        let found = paths
            .into_iter()
            .find(|path| build_id(path).is_some_and(|found| !differs(Some(id), Some(&found))))?;
        Module::open_with(&found, &self.sources.debug).ok()
    }

    /// The paths that distributions and kernel builds use.
    fn usual_places(&self, release: &str) -> Vec<PathBuf> {
        // It comes from the recording, and must be a plain name.
        if release.contains('/') {
            return Vec::new();
        }
        let mut paths = Vec::new();
        for root in &self.sources.debug.roots {
            paths.push(root.join("boot").join(format!("vmlinux-{release}")));
            paths.push(root.join("lib/modules").join(release).join("vmlinux"));
        }
        if !self.sources.debug.roots.is_empty() {
            paths.push(PathBuf::from(format!("/boot/vmlinux-{release}")));
            paths.push(PathBuf::from(format!("/lib/modules/{release}/build/vmlinux")));
        }
        paths
    }

    /// The recorded vDSO: by build ID this process's own or one that perf saved; without one this
    /// process's own, if the kernel is the same.
    pub(super) fn open_vdso(&self, build_id: Option<&[u8]>) -> Option<Box<Module>> {
        let sources = &self.sources;
        let own = || {
            let module = Module::in_memory(Path::new("/[vdso]"), own_bytes()?, &sources.debug);
            module.ok().map(Box::new)
        };
        match build_id {
            Some(id) => own()
                .filter(|module| module.build_id().is_some_and(|own| !differs(Some(id), Some(own))))
                .or_else(|| {
                    let kept = sources.debug.vdso(id)?;
                    Module::open_with(&kept, &sources.debug).ok().map(Box::new)
                }),
            None => {
                let here = |kernel: &Kernel| kernel.recorded.check(&sources.kernel).is_ok();
                let same = !self.kernels.is_empty() && self.kernels.iter().all(here);
                same.then(own).flatten()
            }
        }
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
