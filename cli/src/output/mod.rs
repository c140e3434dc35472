//! The one place where outputs are made, so that nothing which stands in the
//! folder beforehand decides what is written over.
//!
//! A file is never opened through a link, nor written into while it has a name
//! that somebody else reads: its text is written beside the place and renamed
//! into it, which replaces a link and leaves alone what the link leads to.
//! Recordings, which have to be readable while they grow, are made as
//! [`recording`] says. Pipes and devices are written as they are, and waiting
//! for them ends with the signal that ends the command.

pub(crate) mod recording;
pub(crate) mod stream;

use lbr_msr::text::AsText;
use std::fs::{File, Metadata, Permissions};
use std::io::{IsTerminal, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use self::stream::Stream;
use crate::exit::{Failure, OrExit, USAGE};
use crate::present::out::Out;

/// Where an output is to go. Whatever can be refused is refused when this is
/// made, before anything is read, recorded or written.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    to: To,
    /// The mode of a new file; the mask of the process takes its bits off.
    mode: u32,
}

#[derive(Debug)]
enum To {
    /// A descriptor that we were started with, such as standard output.
    Ours(File),
    /// A pipe with a name, or a device.
    Device,
    /// A file that is made.
    File,
}

impl Output {
    /// Looks at the place; `inputs` are the files that it must not be.
    pub(crate) fn new<P: AsRef<Path>>(
        path: &Path,
        inputs: impl IntoIterator<Item = P>,
    ) -> Result<Output, Failure> {
        let to = To::of(path)?;
        if let Ok(there) = std::fs::metadata(path).or_else(|error| match &to {
            To::Ours(file) => file.metadata(),
            _ => Err(error),
        }) {
            let same = |input: &P| of_input(input.as_ref()).is_some_and(|it| is_same(&it, &there));
            if let Some(input) = inputs.into_iter().find(same).filter(|_| there.is_file()) {
                let (path, input) = (path.as_text(), crate::input::name(input.as_ref()));
                let error = anyhow!("{path} would be written over while it is read ({input})");
                return Err(Failure { code: USAGE, error });
            }
        }
        Ok(Output { path: path.to_owned(), to, mode: 0o666 })
    }

    /// A file that is its owner's alone, as recordings are.
    pub(crate) fn private(self) -> Output {
        Output { mode: 0o600, ..self }
    }

    /// As it was named.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be opened again by its name, and read.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.to, To::File)
    }

    /// Whether it is standard output or another of our descriptors, and leads to a
    /// file.
    pub(crate) fn is_redirected(&self) -> bool {
        let is_file = |file: &File| file.metadata().is_ok_and(|there| there.is_file());
        matches!(&self.to, To::Ours(file) if is_file(file))
    }

    /// Refuses a terminal: what is to be written is no text.
    pub(crate) fn no_terminal(&self) -> Result<(), Failure> {
        if !matches!(&self.to, To::Ours(file) if file.is_terminal()) {
            return Ok(());
        }
        Err(anyhow!("this is no text for a terminal: give -o FILE, or a pipe")).or_exit(USAGE)
    }

    /// Writes all of it.
    pub(crate) fn write(&self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        self.stream(|to| to.write_all(bytes.as_ref()).map(Ok)).map_err(|failure| failure.error)
    }

    /// Writes it piece by piece. A file has its name once all is written, and
    /// none where writing it failed, or what `write` does beside that.
    pub(crate) fn stream<T>(
        &self,
        write: impl FnOnce(&mut Out<'_>) -> std::io::Result<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.stream_with_header(|out| Ok(write(out)?.map(|made| (made, Vec::new()))))
    }

    /// The same; with what is made come the first bytes of a file, which are
    /// written over those that stand there.
    pub(crate) fn stream_with_header<T>(
        &self,
        write: impl FnOnce(&mut Out<'_>) -> std::io::Result<Result<(T, Vec<u8>), Failure>>,
    ) -> Result<T, Failure> {
        let all = |to: &mut dyn Write| {
            let mut out = Out::plain(to);
            let made = write(&mut out)?;
            out.flush().map(|()| made)
        };
        let made = match &self.to {
            // An error without a name is one of standard output.
            To::Ours(file) => Ok(all(&mut Stream::new(file.try_clone()?, None))?),
            To::Device => Stream::open(&self.path, None).and_then(|mut to| all(&mut to)),
            To::File => beside(&self.path, self.mode).and_then(|mut file| {
                let made = all(&mut file)?;
                if let Ok((_, header)) = &made {
                    file.rewind()?;
                    file.write_all(header)?;
                    file.persist(&self.path).map_err(|error| error.error)?;
                }
                Ok(made)
            }),
        };
        let made = made.with_context(|| format!("{} cannot be written", self.path.as_text()))?;
        made.map(|(made, _)| made)
    }
}

impl To {
    fn of(path: &Path) -> Result<To, Failure> {
        if let Some(ours) = ours(path) {
            return Ok(To::Ours(ours.with_context(|| path.as_text().into_owned())?));
        }
        let refuse = |what: &str| Err(anyhow!("{} is {what}", path.as_text())).or_exit(USAGE);
        let Ok(there) = std::fs::symlink_metadata(path) else {
            return match path.file_name() {
                Some(_) => Ok(To::File),
                None => refuse("no name of a file"),
            };
        };
        let kind = there.file_type();
        if kind.is_dir() {
            return refuse("a directory: name a file");
        }
        if kind.is_block_device() || kind.is_socket() {
            return refuse("a disk or a socket: name a file");
        }
        Ok(if kind.is_fifo() || kind.is_char_device() { To::Device } else { To::File })
    }
}

/// An output as people call it.
pub(crate) fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    if path == Path::new("-") { "standard output".into() } else { path.as_text() }
}

/// The descriptor of ours that a path names. The names in /dev are links that
/// lead to it, and to wherever it leads.
fn ours(path: &Path) -> Option<std::io::Result<File>> {
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
    match path.to_str()? {
        "-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => {
            Some(own(std::io::stdout().as_fd()))
        }
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => Some(own(std::io::stderr().as_fd())),
        other if ["/dev/fd/", "/proc/self/fd/"].iter().any(|dir| other.starts_with(dir)) => {
            Some(File::options().write(true).open(path))
        }
        _ => None,
    }
}

/// The file behind an input.
fn of_input(path: &Path) -> Option<Metadata> {
    if path == Path::new("-") {
        return File::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok();
    }
    std::fs::metadata(path).ok()
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// A new file beside the place, to be renamed into it.
fn beside(path: &Path, mode: u32) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".lbr-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
}
