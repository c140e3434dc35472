//! The kernel of a recording: its address, its identity, and the symbols that are valid for it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lbr_msr::record::Mmap;

use super::files::{FileKind, State};
use super::kernel_files::{Kernel, Listed, RecordedKernel};
use super::{Function, KERNEL, Mapping, Maps, put_if_few};
use crate::code::symbols::{ListedSymbols, SymbolError, SymbolExtent, module_addresses};
use crate::read::KERNEL_NAME;
use crate::read::perf_data::FileInfo;

/// Lists already read, `None` if unreadable.
pub(super) type Lists = HashMap<PathBuf, Option<Arc<ListedSymbols>>>;

impl Maps {
    /// Adds the recording's metadata: build IDs, and the recorded kernel. Called at the end of the
    /// recording.
    pub fn recorded(&mut self, info: &FileInfo) {
        self.build_ids(&info.build_ids);
        self.programs.words.extend(info.cmdline.iter().skip(1).cloned());
        self.expect_kernel(info);
        let kernel = self.kernels.get(self.recording as usize).map(|kernel| &kernel.recorded);
        if let Some(machine) =
            kernel.and_then(|kernel| kernel.machine_other_than(&self.sources.kernel))
        {
            let recording = self.recording;
            for file in self.files.iter_mut().filter(|file| file.recording == recording) {
                file.other_machine = Some(machine.clone());
            }
        }
        self.join_kernels();
        // The vDSO's kernel may be known only now.
        for file in self.files.iter_mut().filter(|file| file.kind == FileKind::Vdso) {
            if matches!(file.state, State::Silent) {
                file.state = State::NotTried;
            }
        }
    }

    /// Sets the recorded kernel, as far as the recording and its mappings tell.
    pub(super) fn expect_kernel(&mut self, info: &FileInfo) {
        let known = self.by_path.get(KERNEL_NAME).and_then(|&file| self.files.get(file));
        let listed = info.build_ids.iter().find(|(path, _)| path.starts_with(KERNEL_NAME));
        let build_id = known.and_then(|file| file.build_id.clone());
        let recorded = RecordedKernel {
            release: info.osrelease.clone(),
            hostname: info.hostname.clone(),
            build_id: build_id.or_else(|| listed.map(|(_, id)| id.clone())),
        };
        self.kernel_mut().recorded = recorded;
    }

    /// Merges the kernel with the same one of an earlier recording, independent of its load
    /// address.
    fn join_kernels(&mut self) {
        let Some((ours, earlier)) = self.kernels.split_last_mut() else { return };
        let Some(same) = earlier.iter().find(|kernel| kernel.recorded.is(&ours.recorded)) else {
            return;
        };
        let key = |file: usize| {
            self.files.get(file).map(|file| (file.path.as_str(), file.kind.reference()))
        };
        let mut theirs: HashMap<_, usize> = HashMap::new();
        for mapping in same.mappings.values() {
            theirs.entry(key(mapping.file)).or_insert(mapping.file);
        }
        let moved: Vec<Mapping> = ours
            .mappings
            .values()
            .filter_map(|ours| Some(Mapping { file: *theirs.get(&key(ours.file))?, ..*ours }))
            .collect();
        moved.into_iter().for_each(|mapping| ours.mappings.insert(mapping));
    }

    /// Handles a mapping of the kernel, or of one of its modules.
    pub(super) fn kernel_mmap(&mut self, map: &Mmap) {
        let recording = self.recording;
        let (path, kind, pgoff) = match map.path.strip_prefix(KERNEL_NAME) {
            // Its file offset is the address, during the recording, of the symbol at the end of its
            // name.
            Some(reference) => {
                let known = !reference.is_empty() && map.pgoff >= KERNEL;
                let origin = if known { map.pgoff } else { 0 };
                let reference = known.then(|| reference.to_owned());
                let kind = FileKind::Kernel { recording, reference };
                (KERNEL_NAME, kind, map.addr.wrapping_sub(origin))
            }
            None if map.path.starts_with("bpf_") => {
                (map.path.as_str(), FileKind::Whole { recording, len: map.len }, 0)
            }
            None => {
                let name = module_name(&map.path);
                (map.path.as_str(), FileKind::Module { recording, name, start: map.addr }, 0)
            }
        };
        let file = self.file(path, map.build_id.as_deref(), kind);
        let file = file.unwrap_or(usize::MAX);
        let new = Mapping { start: map.addr, len: map.len, pgoff, file };
        let kept = put_if_few(&mut self.kernel_mut().mappings, new);
        self.unkept.mappings += u64::from(!kept);
    }

    fn kernel_mut(&mut self) -> &mut Kernel {
        let index = self.recording as usize;
        if self.kernels.len() <= index {
            self.kernels.resize_with(index + 1, Kernel::default);
        }
        &mut self.kernels[index]
    }

    /// The symbols of the recorded kernel or module, if available. Reports once why not.
    pub(super) fn open_kernel(&mut self, kind: &FileKind) -> State {
        self.find_kernel(kind).unwrap_or_else(|error| {
            let text = error.to_string();
            let is_repeated = self.failures().any(|earlier| earlier.to_string() == text);
            if is_repeated { State::Silent } else { State::Failed(error) }
        })
    }

    fn find_kernel(&mut self, kind: &FileKind) -> Result<State, SymbolError> {
        let vmlinux = match kind {
            FileKind::Kernel { recording, reference: Some(reference) } => {
                self.vmlinux(*recording, reference)?
            }
            _ => None,
        };
        Ok(match (vmlinux, self.open_list(kind)) {
            (None, state) => state?,
            (Some(vmlinux), Ok(State::Listed(listed))) => State::Vmlinux(vmlinux, Some(listed)),
            (Some(vmlinux), _) => State::Vmlinux(vmlinux, None),
        })
    }

    fn open_list(&mut self, kind: &FileKind) -> Result<State, SymbolError> {
        let (list, here) = self.kernel_list(kind)?;
        let Some(symbols) = self.read_list(&list)? else { return Ok(State::Silent) };
        let (module, base) = match kind {
            FileKind::Kernel { reference: None, .. } => (String::new(), Some(0)),
            FileKind::Kernel { reference: Some(reference), .. } => {
                (String::new(), symbols.address(reference))
            }
            FileKind::Module { name, start, .. } => {
                // Modules may have moved, unless the list belongs to the recording.
                let modules = &self.sources.kernel.modules;
                let now = here.then(|| module_addresses(modules).get(name).copied()).flatten();
                (name.clone(), Some(now.map_or(*start, |(addr, _)| addr)))
            }
            _ => return Ok(State::Silent),
        };
        let base = base.ok_or(SymbolError::NotKallsyms(list))?;
        Ok(State::Listed(Listed { symbols, module, base }))
    }

    /// The list that is valid for a recorded kernel, and whether it is the running kernel's.
    fn kernel_list(&self, kind: &FileKind) -> Result<(PathBuf, bool), SymbolError> {
        if let Some(given) = &self.sources.kallsyms {
            return Ok((given.clone(), false));
        }
        let (FileKind::Kernel { recording, .. } | FileKind::Module { recording, .. }) = kind else {
            return Err(SymbolError::UnknownKernel);
        };
        let kernel = self.kernels.get(*recording as usize);
        let recorded = kernel.map(|kernel| kernel.recorded.clone()).unwrap_or_default();
        match recorded.check(&self.sources.kernel) {
            Ok(()) => Ok((self.sources.kernel.kallsyms.clone(), true)),
            // perf saves the lists of the kernels it recorded.
            Err(error) => {
                let kept = recorded.build_id.and_then(|id| self.sources.debug.kallsyms(&id));
                kept.map(|kept| (kept, false)).ok_or(error)
            }
        }
    }

    /// A list; `None` if an earlier attempt to read it failed.
    fn read_list(&mut self, path: &Path) -> Result<Option<Arc<ListedSymbols>>, SymbolError> {
        if let Some(known) = self.kernel_lists.get(path) {
            return Ok(known.clone());
        }
        let read = ListedSymbols::read(path).map(Arc::new);
        let known = read.as_ref().ok().map(Arc::clone);
        self.kernel_lists.insert(path.to_owned(), known);
        read.map(Some)
    }

    /// The function at a kernel address without a mapping, from the list that the user gave.
    pub(super) fn in_given_list(&mut self, addr: u64) -> Option<Function> {
        let symbols = self.given_list().filter(|_| addr >= KERNEL)?;
        let SymbolExtent { name, addr: address, end } = symbols.at_any(addr)?;
        let offsets = address..end.unwrap_or_else(|| addr.saturating_add(1));
        Some(Function { name: name.to_owned(), file: usize::MAX, offsets, address })
    }

    /// The list of kernel symbols that the user gave.
    pub(super) fn given_list(&mut self) -> Option<Arc<ListedSymbols>> {
        let list = self.sources.kallsyms.clone()?;
        self.read_list(&list).ok()?
    }
}

/// Whether a mapping is the host kernel's. A guest's kernel is another one.
pub(super) fn is_kernel(map: &Mmap) -> bool {
    let guest = map.path.starts_with("[guest");
    !guest
        && (map.path.starts_with(KERNEL_NAME) || (map.addr >= KERNEL && map.path != "[vsyscall]"))
}

/// The name of a module as in the kernel's list: of `[xfs]`, and of
/// `/lib/modules/6.1.0/kernel/fs/xfs/xfs.ko.xz`.
fn module_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let name = name.split_once(".ko").map_or(name, |(name, _)| name);
    name.replace('-', "_")
}
