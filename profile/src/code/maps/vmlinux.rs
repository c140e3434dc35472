//! The kernel's ELF file, whose symbols and lines are valid for any load address.

use std::path::PathBuf;

use super::Maps;
use super::kernel::RecordedKernel;
use super::listed::Vmlinux;
use crate::code::symbols::{Module, SymbolError, build_id};

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
                if super::differs(id, module.build_id()) {
                    return Err(SymbolError::OtherVmlinux { path: given.clone() });
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
        let found = paths.into_iter().find(|path| {
            build_id(path).is_some_and(|found| !super::differs(Some(id), Some(&found)))
        })?;
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
}
