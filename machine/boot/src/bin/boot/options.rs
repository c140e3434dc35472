//! Command-line options of the test machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lbr_test_machine::WORK_FOLDER;

/// The usage message.
pub(crate) const USAGE: &str = "\
usage: test-machine run [OPTION]... -- COMMAND [ARGUMENT]...
       test-machine run [OPTION]... --script FILE [-- ARGUMENT...]

Runs a command as root in a virtual machine whose CPU has an LBR. There are
busybox's commands beside lbr; `su user -c COMMAND` runs one without rights.

  --cpu FF_MM         the CPU whose LBR the guest has, or a name such as
                      skylake or zen4 (default 06_5E)
  --lie NAME          let the CPU's LBR differ from its documents in this way;
                      may be given more than once
  --no-pmu            leave out the CPU's performance monitor
  --deep-idle         let HLT stand for a C-state deeper than C1
  --smp N             CPUs of the guest (default 2)
  --threads N         hyperthreads of a core (default 1); they share
                      MSR_LBR_SELECT where those of the CPU do
  --memory MIB        memory of the guest (default 512)
  --file PATH[:NAME]  put this file into the guest, as /work/NAME; a NAME that
                      starts with / is a path there
  --tree DIR          put everything below DIR into the guest, at its root
  --script FILE       run FILE with the guest's sh
  --out DIR           put what the command leaves in /out here
  --env NAME=VALUE    an environment variable of the command
  --no-msr            do not load the msr module (it is then in /work/msr.ko)
  --append WORDS      further words for the kernel's command line
  --timeout SECONDS   stop the machine after this time (default 300)
  --verbose           show the kernel's console and how long each part took
";

/// The options, with defaults.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) cpu: String,
    pub(crate) lies: Vec<String>,
    pub(crate) pmu: bool,
    pub(crate) deep_idle: bool,
    pub(crate) smp: u32,
    pub(crate) threads: u32,
    pub(crate) memory: u32,
    pub(crate) files: Vec<(PathBuf, String)>,
    pub(crate) trees: Vec<PathBuf>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) environment: Vec<String>,
    pub(crate) msr: bool,
    pub(crate) append: String,
    pub(crate) timeout: Duration,
    pub(crate) verbose: bool,
    pub(crate) command: Vec<String>,
}

impl Options {
    /// `None`: help was requested.
    pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Option<Options>, String> {
        let mut options = Options {
            cpu: "06_5E".to_owned(),
            lies: Vec::new(),
            pmu: true,
            deep_idle: false,
            smp: 2,
            threads: 1,
            memory: 512,
            files: Vec::new(),
            trees: Vec::new(),
            out: None,
            environment: Vec::new(),
            msr: true,
            append: String::new(),
            timeout: Duration::from_secs(300),
            verbose: false,
            command: Vec::new(),
        };
        let mut script = Vec::new();
        let mut words = words.map(|word| {
            word.into_string().map_err(|word| format!("{} is not UTF-8", word.display()))
        });
        while let Some(word) = words.next() {
            let word = word?;
            let mut value = || words.next().unwrap_or(Err(format!("{word} needs a value")));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--cpu" => options.cpu = value()?,
                "--lie" => options.lies.push(value()?),
                "--no-pmu" => options.pmu = false,
                "--deep-idle" => options.deep_idle = true,
                "--threads" => options.threads = number(&word, &value()?, 1..=64)?,
                "--smp" => options.smp = number(&word, &value()?, 1..=64)?,
                "--memory" => options.memory = number(&word, &value()?, 128..=65536)?,
                "--file" => {
                    let value = value()?;
                    let (path, name) = match value.rsplit_once(':') {
                        Some((path, name)) if !name.is_empty() => (path, name.to_owned()),
                        _ => (value.as_str(), file_name(&value)?),
                    };
                    options.files.push((path.into(), name));
                }
                "--tree" => options.trees.push(value()?.into()),
                "--script" => {
                    let path = value()?;
                    let name = file_name(&path)?;
                    script = vec!["sh".to_owned(), format!("/{WORK_FOLDER}/{name}")];
                    options.files.push((path.into(), name));
                }
                "--out" => options.out = Some(value()?.into()),
                "--env" => options.environment.push(value()?),
                "--no-msr" => options.msr = false,
                "--append" => options.append = value()?,
                "--timeout" => {
                    let seconds = number(&word, &value()?, 1..=86_400)?;
                    options.timeout = Duration::from_secs(seconds.into());
                }
                "--verbose" => options.verbose = true,
                "--" => {
                    for word in words.by_ref() {
                        options.command.push(word?);
                    }
                }
                _ => return Err(format!("unknown option {word}")),
            }
        }
        if !script.is_empty() {
            options.command.splice(0..0, script);
        }
        if !options.smp.is_multiple_of(options.threads) {
            return Err(format!(
                "--threads {} does not divide --smp {}",
                options.threads, options.smp
            ));
        }
        if options.command.is_empty() {
            return Err("no command to run in the guest".to_owned());
        }
        Ok(Some(options))
    }

    /// QEMU's CPU model: everything it can emulate, with the right vendor, because the plugin
    /// patches all of CPUID except that. The leaves that the plugin fills must be below the
    /// highest. No AVX: if CPUID announces TSX, the C library's AVX functions execute XTEST, which
    /// QEMU lacks.
    pub(crate) fn qemu_cpu(&self) -> String {
        let amd = self.cpu.starts_with("zen")
            || matches!(
                self.cpu.split('_').next(),
                Some("10" | "11" | "12" | "14" | "15" | "16" | "17" | "19" | "1a" | "1A")
            );
        let vendor = if amd {
            "vendor=AuthenticAMD,xlevel=0x80000022"
        } else {
            "vendor=GenuineIntel,level=0x1c,-svm"
        };
        format!("max,{vendor},-avx,-avx2,-monitor,-x2apic,-la57")
    }

    /// The kernel's command line.
    pub(crate) fn kernel(&self) -> String {
        // Linux counts timer interrupts against its own delay loops, and panics if the host was
        // busy with something else. Its NMI watchdog would count cycles permanently, which costs a
        // callback at each entry of the kernel.
        format!(
            "console=ttyS0 panic=-1 no_timer_check nmi_watchdog=0 quiet loglevel=4 {}",
            self.append
        )
    }

    /// The plugin's arguments.
    pub(crate) fn plugin(&self) -> String {
        let mut arguments = format!("cpu={},threads={}", self.cpu, self.threads);
        if !self.pmu {
            arguments.push_str(",pmu=off");
        }
        if self.deep_idle {
            arguments.push_str(",idle=deep");
        }
        for lie in &self.lies {
            arguments.push_str(",lie=");
            arguments.push_str(lie);
        }
        arguments
    }
}

fn number(option: &str, value: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    value
        .parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("{option} {value}: expected {} to {}", range.start(), range.end()))
}

fn file_name(path: &str) -> Result<String, String> {
    Path::new(path)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .ok_or_else(|| format!("{path} names no file"))
}
