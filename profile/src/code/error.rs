//! Why symbols are unavailable.

use lbr_msr::text::AsText;
use std::path::PathBuf;

use super::demangle::NotOne;
use super::hex;

/// Why a file gives no symbols.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// It cannot be opened.
    #[error("cannot open {}: {cause}", path.as_text())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        cause: std::io::Error,
    },
    /// It is not a regular file: a name in brackets, or a device.
    #[error("{} is not a regular file", .0.as_text())]
    NotAFile(PathBuf),
    /// It is not an ELF file.
    #[error("{} is not an object file: {what}", path.as_text())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// Its defect.
        what: String,
    },
    /// No file exists at the recorded path or in the other places searched.
    #[error("{path}{} is not there{}", recorded_id(build_id.as_deref()), looked_in(folders))]
    NotFound {
        /// The recorded path.
        path: String,
        /// The recorded build ID.
        build_id: Option<Vec<u8>>,
        /// The other folders searched.
        folders: Vec<PathBuf>,
    },
    /// It is not the recorded file.
    #[error(
        "{} was replaced since it was recorded (build ids differ: {} was recorded, it has {}): its symbols are not used",
        path.as_text(), hex(recorded), found.as_deref().map_or_else(|| "none".to_owned(), hex)
    )]
    BuildId {
        /// The file.
        path: PathBuf,
        /// The recorded build ID.
        recorded: Vec<u8>,
        /// The file's own.
        found: Option<Vec<u8>>,
    },
    /// The recorded branches do not match its code.
    #[error(
        "{} is not the file that was recorded: of {of} branches from it {no_branch} come from no branch instruction \
         and {elsewhere} go elsewhere than theirs{} (the first at byte {first:#x}): its symbols are not used",
        path.as_text(), no_code(*impossible)
    )]
    Contradicted {
        /// The file.
        path: PathBuf,
        /// Distinct branches that were compared with its code.
        of: u32,
        /// Those that do not start at a branch instruction.
        no_branch: u32,
        /// Those that start at a branch instruction with another target.
        elsewhere: u32,
        /// Blocks between branches that do not consist of instructions.
        impossible: u32,
        /// Offset of the first of them.
        first: u64,
    },
    /// It was recorded on another machine, which may have had another version.
    #[error(
        "{} is this machine's, and {recorded} was recorded, without its build id: its symbols are not used",
        path.as_text()
    )]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// Name or kernel of the recorded machine.
        recorded: String,
    },
    /// It has no function with that name, or several.
    #[error("{} has {why}{}", path.as_text(), if *stripped { " (it is stripped)" } else { "" })]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// Which of the two.
        why: NotOne,
        /// Whether it has no symbols at all.
        stripped: bool,
    },
    /// A location in it has no code.
    #[error("{} has no code at {place}", path.as_text())]
    NoCode {
        /// The file.
        path: PathBuf,
        /// The location as given.
        place: String,
    },
    /// The recorded kernel is not the running one.
    #[error(
        "the kernel that was recorded ({recorded}) is not the one running here ({running}): its symbols are not used"
    )]
    OtherKernel {
        /// Release or build ID of the recorded kernel.
        recorded: String,
        /// The same of the running kernel.
        running: String,
    },
    /// The given ELF file belongs to another kernel.
    #[error("{} is not the kernel that was recorded (build ids differ): its symbols are not used", .0.as_text())]
    OtherVmlinux(PathBuf),
    /// The recorded kernel is unknown.
    #[error("the recording does not say which kernel ran: no kernel symbols are used")]
    UnknownKernel,
    /// The kernel shows zeros instead of addresses.
    #[error("{} shows no addresses (kernel.kptr_restrict, or no right to see them): the kernel's functions have no names", .0.as_text())]
    Restricted(PathBuf),
    /// It is not a list of kernel symbols.
    #[error("{} is not a list of kernel symbols", .0.as_text())]
    NotKallsyms(PathBuf),
    /// A symbol list of generated code that belongs to another user.
    #[error("{} belongs neither to the user nor to root: its names are not used", .0.as_text())]
    Owner(PathBuf),
    /// A symbol list of generated code that is too large.
    #[error("{} is too large ({size} bytes): its names are not used", path.as_text())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
}

impl SymbolError {
    /// Whether there is a file, but not the recorded one.
    pub fn is_other_file(&self) -> bool {
        use SymbolError::{BuildId, Contradicted, OtherMachine};
        matches!(self, BuildId { .. } | Contradicted { .. } | OtherMachine { .. })
    }
}

fn no_code(impossible: u32) -> String {
    match impossible {
        0 => String::new(),
        blocks => format!(", and {blocks} blocks between them are not code"),
    }
}

fn recorded_id(id: Option<&[u8]>) -> String {
    id.map(|id| format!(" (build id {})", hex(id))).unwrap_or_default()
}

fn looked_in(folders: &[PathBuf]) -> String {
    if folders.is_empty() {
        return String::new();
    }
    let folders: Vec<String> = folders.iter().map(|folder| folder.as_text().into_owned()).collect();
    format!(", nor in {}", folders.join(", "))
}
