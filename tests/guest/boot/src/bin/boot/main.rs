//! Starts the test machine's guest in QEMU, forwards the output of its command, saves the files it
//! created, and exits with its status.
//!
//! Called by `scripts/test-machine` with the parts it has downloaded and built.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

mod options;

use lbr_test_machine::archive::Archive;
use lbr_test_machine::frame::{self, FrameKind};
use lbr_test_machine::{COMMAND_FILE, ENVIRONMENT_FILE, FRAME_PORT, MODULE_FOLDER, WORK_FOLDER};
use options::Options;

/// The machine failed.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let options = Options::of_process();
    match boot(&options) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("test-machine: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Adds the failed operation to an error.
fn doing<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", what())))
}

/// QEMU, killed on drop.
#[derive(Debug)]
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn boot(options: &Options) -> io::Result<u8> {
    let started = Instant::now();
    let scratch = tempfile::Builder::new().prefix("lbr-test-machine-").tempdir()?;
    let initrd = scratch.path().join("initrd");
    let console = scratch.path().join("console");
    doing(write_initrd(&initrd, options), || "writing the guest's files".to_owned())?;
    if options.verbose {
        eprintln!("test-machine: guest's files written after {:.2?}", started.elapsed());
    }

    let mut command = Command::new(&options.qemu);
    command
        .arg("qemu-system-x86_64")
        .args(["-accel", "tcg,thread=multi"])
        .args(["-cpu", &options.qemu_cpu()])
        .args(["-smp", &format!("{},sockets=1,threads={}", options.smp, options.threads)])
        .args(["-m", &options.memory.to_string()])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-chardev", "file,id=frames,path=/dev/stdout"])
        .args(["-device", &format!("isa-debugcon,iobase={FRAME_PORT:#x},chardev=frames")])
        .args(["-serial", &format!("file:{}", console.display())])
        .args(["-plugin", &format!("{},{}", options.plugin.display(), options.plugin())])
        // The plugin's statistics.
        .args(if options.verbose { &["-d", "plugin"][..] } else { &[] })
        .arg("-kernel")
        .arg(&options.kernel)
        .arg("-initrd")
        .arg(&initrd)
        .arg("-append")
        .arg(options.kernel())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut machine = Machine(doing(command.spawn(), || options.qemu.display().to_string())?);
    let frames = machine.0.stdout.take().ok_or_else(|| io::Error::other("no pipe from QEMU"))?;
    let (sender, receiver) = mpsc::sync_channel(16);
    std::thread::spawn(move || receive(frames, &sender));

    let status = follow(&receiver, options, started);
    let log = fs::read(&console).unwrap_or_default();
    if options.verbose || !matches!(status, Ok(Some(_))) {
        // The end of the log, with a panic or error of the kernel.
        let from = if options.verbose { 0 } else { log.len().saturating_sub(4000) };
        let log = String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned();
        for line in log.lines() {
            eprintln!("console: {line}");
        }
    }
    let Some(status) = status? else {
        drop(machine);
        return Err(io::Error::other(if log.is_empty() {
            "QEMU did not start the guest; see its message above"
        } else {
            "the guest stopped before its command ended; the end of its console is above"
        }));
    };
    // The guest powers off; the plugin then prints its statistics.
    let patience = Instant::now();
    while patience.elapsed() < Duration::from_secs(5) && machine.0.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    if options.verbose {
        eprintln!("test-machine: off after {:.2?}", started.elapsed());
    }
    Ok(u8::try_from(status).unwrap_or(FAILED))
}

fn write_initrd(path: &Path, options: &Options) -> io::Result<()> {
    let mut archive = Archive::new(BufWriter::new(File::create(path)?))?;
    for folder in ["proc", "sys", "tmp", "root", WORK_FOLDER] {
        archive.folder(folder)?;
    }
    archive.tree(&options.root, "")?;
    let modules = if options.no_msr { WORK_FOLDER } else { MODULE_FOLDER };
    archive.tree(&options.modules, &format!("{modules}/"))?;
    for tree in &options.trees {
        archive.tree(tree, "")?;
    }
    for (path, name) in &options.files {
        let contents = doing(fs::read(path), || path.display().to_string())?;
        let mode = fs::metadata(path)?.permissions().mode();
        let name = match name.strip_prefix('/') {
            Some(absolute) => absolute.to_owned(),
            None => format!("{WORK_FOLDER}/{name}"),
        };
        archive.file(&name, mode, &contents)?;
    }
    // `su user -c COMMAND` runs a command as an ordinary user.
    archive.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
    )?;
    archive.file("etc/group", 0o644, b"root:x:0:\nuser:x:1000:\n")?;
    let list = |words: &[String]| words.iter().flat_map(|word| [word, "\0"]).collect::<String>();
    archive.file(COMMAND_FILE, 0o644, list(&options.command).as_bytes())?;
    archive.file(ENVIRONMENT_FILE, 0o644, list(&options.environment).as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// A frame, or why there are no more.
type Received = io::Result<(FrameKind, Vec<u8>)>;

/// Reads frames until the guest is gone. In a separate thread, so that the main thread can time
/// out.
fn receive(stream: impl Read, sender: &mpsc::SyncSender<Received>) {
    let mut stream = BufReader::new(stream);
    match frame::skip_to_preamble(&mut stream) {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => return drop(sender.send(Err(error))),
    }
    while let Some(message) = frame::read(&mut stream).transpose() {
        let is_last = message.is_err();
        if sender.send(message).is_err() || is_last {
            return;
        }
    }
}

/// Handles frames until the command has ended. `None`: the guest stopped without a status.
fn follow(
    frames: &mpsc::Receiver<Received>,
    options: &Options,
    started: Instant,
) -> io::Result<Option<u32>> {
    let mut file: Option<File> = None;
    let mut first = true;
    loop {
        let left = Duration::from_secs(options.timeout).saturating_sub(started.elapsed());
        let (kind, contents) = match frames.recv_timeout(left) {
            Ok(message) => message?,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the command did not end within {} s", options.timeout),
                ));
            }
        };
        if first && options.verbose {
            eprintln!("test-machine: first frame of the guest after {:.2?}", started.elapsed());
        }
        first = false;
        match kind {
            FrameKind::Stdout => pass_on(&mut io::stdout(), &contents)?,
            FrameKind::Stderr => pass_on(&mut io::stderr(), &contents)?,
            FrameKind::Notice => {
                eprintln!("{}", String::from_utf8_lossy(&contents));
            }
            FrameKind::FileName => {
                let name = String::from_utf8_lossy(&contents).into_owned();
                file = match &options.out {
                    Some(out) => Some(doing(create_below(out, &name), || name.clone())?),
                    None => None,
                };
            }
            FrameKind::FileData => {
                if let Some(file) = &mut file {
                    file.write_all(&contents)?;
                }
            }
            FrameKind::Status => {
                let bytes = <[u8; 4]>::try_from(contents.as_slice())
                    .map_err(|_| io::Error::other("the guest's status is not four bytes"))?;
                return Ok(Some(u32::from_le_bytes(bytes)));
            }
        }
    }
}

/// A closed reader is not an error.
fn pass_on(stream: &mut impl Write, contents: &[u8]) -> io::Result<()> {
    match stream.write_all(contents).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Creates a file named by the guest, always below `folder`.
fn create_below(folder: &Path, name: &str) -> io::Result<File> {
    let mut path = folder.to_owned();
    for part in Path::new(name).components() {
        let Component::Normal(part) = part else {
            return Err(io::Error::other("the guest named a file outside its folder"));
        };
        path.push(part);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(path)
}
