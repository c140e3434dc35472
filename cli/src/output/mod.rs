//! Creates outputs, so that no file already in the directory decides which file is overwritten.
//!
//! The directory is opened once, as [`directory`] describes. A file is never
//! opened through a link, and has no name until it is complete: then it takes
//! the name, which replaces a link and leaves the link's target alone.
//! Recordings, which must be readable while they grow, are made as [`recording`]
//! describes. Pipes and devices are written directly, and waiting for them ends
//! with the signal that ends the command.

mod directory;
pub(crate) mod recording;
pub(crate) mod stream;

use lbr_msr::text::AsText;
use std::fs::{File, Metadata};
use std::io::{IsTerminal, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::sys::stat::SFlag;

use self::directory::DirEntry;
use self::stream::Stream;
use crate::exit::{Result, usage};
use crate::input::file::is_trusted;
use crate::present::Out;

/// The destination of an output. All checks are made on construction, before anything is read,
/// recorded or written.
pub(crate) struct Output {
    path: PathBuf,
    to: To,
    /// The mode of a new file; the mask of the process takes its bits off.
    mode: u32,
}

enum To {
    /// A descriptor that we were started with, such as standard output.
    Ours(File),
    /// A pipe with a name, or a device.
    Device(DirEntry),
    /// A file that is made.
    File(DirEntry),
}

impl Output {
    /// Checks the path; the output must not be one of `inputs`.
    pub(crate) fn new<P: AsRef<Path>>(
        path: &Path,
        inputs: impl IntoIterator<Item = P>,
    ) -> Result<Output> {
        let to = To::of(path)?;
        if let Ok(there) = std::fs::metadata(path).or_else(|error| match &to {
            To::Ours(file) => file.metadata(),
            _ => Err(error),
        }) {
            let id = |file: &Metadata| (file.dev(), file.ino());
            let same = |input: &P| of_input(input.as_ref()).map(|it| id(&it)) == Some(id(&there));
            if let Some(input) = inputs.into_iter().find(same).filter(|_| there.is_file()) {
                let (path, input) = (path.as_text(), crate::input::name(input.as_ref()));
                return Err(usage!("{path} would be written over while it is read ({input})"));
            }
        }
        Ok(Output { path: path.to_owned(), to, mode: 0o666 })
    }

    /// A file that is its owner's alone, as recordings are.
    pub(crate) fn private(self) -> Output {
        Output { mode: 0o600, ..self }
    }

    /// Its path as given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be reopened by its path, and read.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.to, To::File(_))
    }

    /// Whether it is standard output or another of our descriptors, and leads to a
    /// file.
    pub(crate) fn is_redirected(&self) -> bool {
        let is_file = |file: &File| file.metadata().is_ok_and(|there| there.is_file());
        matches!(&self.to, To::Ours(file) if is_file(file))
    }

    /// Refuses to write binary output to a terminal.
    pub(crate) fn no_terminal(&self) -> Result<()> {
        if !matches!(&self.to, To::Ours(file) if file.is_terminal()) {
            return Ok(());
        }
        Err(usage!("this output is binary: give -o FILE, or a pipe"))
    }

    /// Writes all of it.
    pub(crate) fn write(&self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        self.stream(|to| to.write_all(bytes.as_ref()).map(Ok)).map_err(|failure| failure.error)
    }

    /// Writes it piece by piece. A file gets its name once it is complete, and none if writing it
    /// or `write` fails.
    pub(crate) fn stream<T>(
        &self,
        write: impl FnOnce(&mut Out<'_>) -> std::io::Result<Result<T>>,
    ) -> Result<T> {
        self.stream_with_header(|out| Ok(write(out)?.map(|made| (made, Vec::new()))))
    }

    /// The same; `write` also returns the first bytes of the file, which overwrite those written
    /// before.
    pub(crate) fn stream_with_header<T>(
        &self,
        write: impl FnOnce(&mut Out<'_>) -> std::io::Result<Result<(T, Vec<u8>)>>,
    ) -> Result<T> {
        let all = |to: &mut dyn Write| {
            let mut out = Out::plain(to);
            let made = write(&mut out)?;
            out.flush().map(|()| made)
        };
        let made = match &self.to {
            // An error without a name is one of standard output.
            To::Ours(file) => Ok(all(&mut Stream::new(file.try_clone()?, None))?),
            To::Device(entry) => Stream::open(entry, None).and_then(|mut to| all(&mut to)),
            To::File(entry) => entry.unnamed(self.mode).and_then(|mut file| {
                let made = all(&mut file)?;
                if let Ok((_, header)) = &made {
                    file.rewind()?;
                    file.write_all(header)?;
                    entry.publish(&mut file, self.mode)?;
                }
                Ok(made)
            }),
        };
        let made = made.with_context(|| format!("{} cannot be written", self.path.as_text()))?;
        made.map(|(made, _)| made)
    }
}

impl To {
    fn of(path: &Path) -> Result<To> {
        if let Some(ours) = ours(path) {
            return Ok(To::Ours(ours.with_context(|| path.as_text().into_owned())?));
        }
        let entry = DirEntry::of(path)?;
        let Ok(status) = entry.status() else { return Ok(To::File(entry)) };
        let refuse = |what: &str| Err(usage!("{} is {what}", path.as_text()));
        match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => refuse("a directory: name a file"),
            SFlag::S_IFBLK | SFlag::S_IFSOCK => refuse("a disk or a socket: name a file"),
            SFlag::S_IFIFO if !is_trusted(status.st_uid) => {
                refuse("a pipe that another user owns and may read: name a file")
            }
            SFlag::S_IFIFO | SFlag::S_IFCHR => Ok(To::Device(entry)),
            _ => Ok(To::File(entry)),
        }
    }
}

/// The name of an output for messages.
pub(crate) fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    if path == Path::new("-") { "standard output".into() } else { path.as_text() }
}

/// Our descriptor that a path names, if any. The names in /dev are links to it, and further to its
/// file.
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

fn of_input(path: &Path) -> Option<Metadata> {
    if path == Path::new("-") {
        return File::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok();
    }
    std::fs::metadata(path).ok()
}
