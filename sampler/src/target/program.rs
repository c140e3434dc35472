//! Finding and checking a program's file.

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lbr_msr::environment;
use lbr_msr::insn::Isa;
use nix::libc;
use object::read::elf::FileHeader;

use super::SourceError;

/// The type of a program file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// An ELF file.
    Elf {
        /// Its instruction set.
        isa: Isa,
        /// The entry address, before relocation.
        entry: u64,
    },
    /// A script: the kernel runs the interpreter in its first line.
    Script,
}

/// Finds a program's file as a shell does: by path if the name contains a slash, else in PATH (if
/// that is [trusted](environment::trusted)).
///
/// # Errors
/// [`SourceError::NotFound`], [`SourceError::NotExecutable`].
pub fn find(program: &str) -> Result<PathBuf, SourceError> {
    if program.contains('/') {
        let path = PathBuf::from(program);
        return executable(&path)
            .map(|()| path.clone())
            .map_err(|cause| SourceError::NotExecutable { path, cause });
    }
    let mut refused = None;
    // The search path of execvp(3) without PATH, also used if PATH is not trusted.
    let search = environment::trusted("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    for folder in std::env::split_paths(&search).filter(|_| !program.is_empty()) {
        let path = folder.join(program);
        match executable(&path) {
            Ok(()) => return Ok(path),
            // The contents of an unsearchable folder are unknown.
            Err(cause)
                if cause.kind() == io::ErrorKind::PermissionDenied
                    && path.symlink_metadata().is_ok() =>
            {
                refused.get_or_insert(SourceError::NotExecutable { path, cause });
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| SourceError::NotFound { program: program.to_owned() }))
}

fn executable(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    // Opening a pipe would block.
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    Ok(())
}

/// The instruction set of a program that exists; `None` for a script.
pub fn isa(program: &str) -> Option<Isa> {
    match inspect(&find(program).ok()?).ok()? {
        ProgramKind::Elf { isa, .. } => Some(isa),
        ProgramKind::Script => None,
    }
}

/// Inspects the first bytes of a program: an ELF file, a script, or a file that cannot be traced.
///
/// # Errors
/// [`SourceError::NotX86_64`], [`SourceError::NotExecutable`] if the file is unreadable.
pub fn inspect(path: &Path) -> Result<ProgramKind, SourceError> {
    let refuse =
        |what: &str| SourceError::NotX86_64 { path: path.to_owned(), what: what.to_owned() };
    let unreadable = |cause| SourceError::NotExecutable { path: path.to_owned(), cause };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut header = Vec::new();
    file.take(64).read_to_end(&mut header).map_err(unreadable)?;
    if header.starts_with(b"#!") {
        return Ok(ProgramKind::Script);
    }
    if !header.starts_with(&object::elf::ELFMAG) {
        return Err(refuse("neither an ELF program nor a script with #!"));
    }
    if header.get(4) == Some(&object::elf::ELFCLASS32.0) {
        return Err(refuse("a 32-bit ELF file"));
    }
    let elf = object::elf::FileHeader64::<object::Endianness>::parse(&*header)
        .map_err(|_| refuse("a damaged ELF file"))?;
    let endian = elf.endian().map_err(|_| refuse("a damaged ELF file"))?;
    let isa = match elf.e_machine(endian) {
        object::elf::EM_X86_64 => Isa::X86_64,
        object::elf::EM_AARCH64 if endian == object::Endianness::Little => Isa::Aarch64,
        machine => return Err(refuse(&format!("an ELF file for machine {}", machine.0))),
    };
    match elf.e_type(endian) {
        object::elf::ET_EXEC | object::elf::ET_DYN => {
            Ok(ProgramKind::Elf { isa, entry: elf.e_entry(endian) })
        }
        _ => Err(refuse("an ELF file other than a program")),
    }
}
