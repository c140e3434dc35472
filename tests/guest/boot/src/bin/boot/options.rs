//! Command-line options of the test machine.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, value_parser};
use lbr_test_machine::WORK_FOLDER;

/// Runs a command as root in a virtual machine whose CPU has an LBR
///
/// The machine has busybox's commands and lbr; `su user -c COMMAND` runs one without rights.
#[derive(Debug, Parser)]
#[command(
    name = "test-machine",
    override_usage = "test-machine run [OPTION]... -- COMMAND [ARGUMENT]...\n       \
                      test-machine run [OPTION]... --script FILE [-- ARGUMENT...]",
    args_override_self = true
)]
pub(crate) struct Options {
    // The parts that the script has downloaded and built.
    /// Runs a QEMU program, named by its first argument.
    #[arg(hide = true)]
    pub(crate) qemu: PathBuf,
    #[arg(hide = true)]
    pub(crate) kernel: PathBuf,
    #[arg(hide = true)]
    pub(crate) plugin: PathBuf,
    /// The base files of the guest.
    #[arg(hide = true)]
    pub(crate) root: PathBuf,
    /// The kernel modules.
    #[arg(hide = true)]
    pub(crate) modules: PathBuf,
    /// The CPU whose LBR the guest has, or a name such as skylake or zen4
    #[arg(long, value_name = "FF_MM", default_value = "06_5E")]
    cpu: String,
    /// Let the CPU's LBR differ from its documents in this way; may be repeated
    #[arg(long = "lie", value_name = "NAME")]
    lies: Vec<String>,
    /// Leave out the CPU's performance monitor
    #[arg(long)]
    no_pmu: bool,
    /// Let HLT stand for a C-state deeper than C1
    #[arg(long)]
    deep_idle: bool,
    /// CPUs of the guest
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) smp: u32,
    /// Hyperthreads of a core, which share MSR_LBR_SELECT where those of the CPU do
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
    /// Memory of the guest
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = value_parser!(u32).range(128..=65536))]
    pub(crate) memory: u32,
    /// Put this file into the guest, as /work/NAME; a NAME that starts with / is a path there
    #[arg(long = "file", value_name = "PATH[:NAME]", value_parser = file)]
    pub(crate) files: Vec<(PathBuf, String)>,
    /// Put everything below DIR into the guest, at its root
    #[arg(long = "tree", value_name = "DIR")]
    pub(crate) trees: Vec<PathBuf>,
    /// Run FILE with the guest's sh
    #[arg(long, value_name = "FILE", value_parser = file)]
    script: Option<(PathBuf, String)>,
    /// Put the files that the command leaves in /out here
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// An environment variable of the command
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) environment: Vec<String>,
    /// Do not load the msr module (it is then in /work/msr.ko)
    #[arg(long)]
    pub(crate) no_msr: bool,
    /// Further words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    append: String,
    /// Stop the machine after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Show the kernel's console and how long each part took
    #[arg(long)]
    pub(crate) verbose: bool,
    #[arg(last = true, hide = true)]
    pub(crate) command: Vec<String>,
}

/// `PATH[:NAME]`; without a name, the last part of the path.
fn file(text: &str) -> Result<(PathBuf, String), String> {
    if let Some((path, name)) = text.rsplit_once(':').filter(|(_, name)| !name.is_empty()) {
        return Ok((path.into(), name.to_owned()));
    }
    let name = Path::new(text).file_name().ok_or("it names no file")?;
    Ok((text.into(), name.to_string_lossy().into_owned()))
}

impl Options {
    /// The options of this process. With --help or a usage error it prints that and exits.
    pub(crate) fn of_process() -> Options {
        let mut options = Options::parse();
        if let Some((path, name)) = options.script.take() {
            let script = ["sh".to_owned(), format!("/{WORK_FOLDER}/{name}")];
            options.command.splice(0..0, script);
            options.files.push((path, name));
        }
        let Options { threads, smp, .. } = options;
        if !smp.is_multiple_of(threads) {
            let why = format!("--threads {threads} does not divide --smp {smp}");
            Options::command().error(ErrorKind::ValueValidation, why).exit()
        }
        if options.command.is_empty() {
            let why = "no command to run in the guest";
            Options::command().error(ErrorKind::MissingRequiredArgument, why).exit()
        }
        options
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
        if self.no_pmu {
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
