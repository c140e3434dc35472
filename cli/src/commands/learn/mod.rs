//! `lbr learn`: a course over the software LBR, one can step through.

mod handout;
mod html;
mod keys;
mod own;
mod screen;
mod words;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use clap::builder::PossibleValuesParser;
use lab::learn::{LESSONS, Lesson, Program, Question, Session};
use lbr_msr::BranchFilter;
use lbr_msr::insn::Isa;
use lbr_msr::soft::SoftCpu;

use self::keys::Play;
use super::rights::Rights;
use super::soft::{self, CpuParser};
use crate::args::heading;
use crate::exit::{DONE, Result, done, usage};
use crate::output::Output;
use crate::present::terminal::{Input, Terminal, is_drawable};
use crate::present::{Cell, Out, Table, say};

/// How soon a signal is noticed.
const LOOK: Duration = Duration::from_millis(100);
/// The CPUs that one can change to, an example of each kind of records.
const CPUS: [&str; 6] = ["nehalem", "haswell", "skylake", "goldmont", "golden-cove", "zen4"];
/// The same for programs of AArch64.
const ARM_CPUS: [&str; 3] = ["brbe-8", "neoverse-v2", "brbe-64"];

/// The CPUs that a program can change to.
fn cpus(program: &Program) -> Vec<SoftCpu> {
    let names: &[&str] = if program.isa == Isa::Aarch64 { &ARM_CPUS } else { &CPUS };
    names.iter().filter_map(|name| SoftCpu::preset(name).ok()).collect()
}

/// Learn what branch records do, step by step
///
/// Examples:
///   lbr learn                        the course, on a terminal
///   lbr learn --transcript wrap      a lesson as text
///   lbr learn --html course.html     all lessons, for the browser
///   lbr learn --from main -- ./prog  your own program
///
/// Each lesson has a program of a few instructions, the LBR stack and control
/// registers of a CPU, and a question that the LBR stack answers. You step
/// forward and back, toggle bits of the control registers, and change the CPU.
/// No LBR hardware is needed: the registers are those of the software LBR.
/// Predictions and cycles are modelled.
///
/// Your own program is single-stepped first, up to --steps instructions of its
/// first thread; then you step through the result in the same way.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Learn {
    /// The first lesson; --list lists them
    #[arg(value_name = "LESSON", value_parser = lessons(), hide_possible_values = true, conflicts_with = "command")]
    lesson: Option<String>,

    /// Branches of your program to record
    ///
    /// perf's names separated by commas.
    #[arg(short = 'j', long = "branch-filter", value_name = "FILTER", default_value = "any,u",
          requires = "command", help_heading = heading::RECORDING)]
    filter: BranchFilter,

    /// Start at this function or place of your program
    ///
    /// May also follow the program: -- ./prog --from main
    #[arg(long, value_name = "PLACE", requires = "command", help_heading = heading::RECORDING)]
    from: Option<String>,

    /// Instructions of your program, at most
    #[arg(long, value_name = "N", default_value_t = 2000, requires = "command",
          value_parser = clap::value_parser!(u32).range(1..=50_000),
          help_heading = heading::RECORDING)]
    steps: u32,

    #[command(flatten)]
    rights: Rights,

    /// A CPU of the software LBR, such as skylake; `list` lists them
    ///
    /// Lessons for CPUs of another instruction set keep their own.
    #[arg(long, value_name = "CPU", value_parser = CpuParser, help_heading = heading::MACHINE)]
    soft_cpu: Option<SoftCpu>,

    /// List the lessons
    #[arg(long, conflicts_with_all = ["transcript", "html", "command"],
          help_heading = heading::OUTPUT)]
    list: bool,

    /// Print a lesson, or your program's steps, as text
    #[arg(long, value_name = "LESSON", num_args = 0..=1, value_parser = lessons(),
          hide_possible_values = true, conflicts_with = "html", help_heading = heading::OUTPUT)]
    transcript: Option<Option<String>>,

    /// Write a page with all lessons, or with LESSON
    ///
    /// `-` is standard output.
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    html: Option<PathBuf>,

    /// Your program and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = heading::RECORDING)]
    command: Vec<String>,
}

fn lessons() -> PossibleValuesParser {
    LESSONS.iter().map(|lesson| lesson.name).collect::<Vec<_>>().into()
}

/// The subject: a lesson, or a user's program.
struct Subject {
    name: String,
    title: String,
    text: Vec<String>,
    lesson: Option<&'static Lesson>,
    session: Session,
}

impl Subject {
    fn of(lesson: &'static Lesson, cpu: Option<&SoftCpu>) -> anyhow::Result<Subject> {
        let damaged = || anyhow!("the lesson {} cannot be made", lesson.name);
        let mut session = Session::of(lesson).ok_or_else(damaged)?;
        let isa = session.trace().program.isa;
        if let Some(cpu) = cpu.filter(|cpu| soft::runs(cpu, isa).is_ok()) {
            if let Some(refused) = session.change_cpu(cpu.clone()) {
                say!("{}: {refused}; everything is recorded", lesson.name);
            }
            session.begin_here();
        }
        let text = lesson.text.iter().map(|paragraph| (*paragraph).to_owned()).collect();
        let (name, title) = (lesson.name.to_owned(), lesson.title.to_owned());
        Ok(Subject { name, title, text, lesson: Some(lesson), session })
    }

    fn questions(&self) -> &'static [Question] {
        self.lesson.map_or(&[], |lesson| lesson.questions)
    }
}

pub(crate) fn run(args: &Learn) -> Result {
    if args.list {
        return list();
    }
    let asked = args.transcript.clone().flatten().or_else(|| args.lesson.clone());
    let program = args.command.first().and_then(|program| sampler::target::find(program).ok());
    let output = args.html.as_deref().map(|path| Output::new(path, &program)).transpose()?;
    let drawn = args.transcript.is_none() && output.is_none();
    if drawn && !is_drawable(true) {
        return Err(usage!(
            "lbr learn needs a terminal; --list lists the lessons, --transcript LESSON prints one, \
             --html FILE writes them for a browser"
        ));
    }
    let all = drawn || (output.is_some() && asked.is_none());
    let subjects = if args.command.is_empty() {
        let first = LESSONS.first().map_or("", |lesson| lesson.name);
        let named = |lesson: &&Lesson| all || lesson.name == asked.as_deref().unwrap_or(first);
        let subject = |lesson| Subject::of(lesson, args.soft_cpu.as_ref());
        LESSONS.iter().copied().filter(named).map(subject).collect::<Result<_, _>>()?
    } else {
        vec![own::subject(args)?]
    };
    if let (Some(cpu), [subject]) = (&args.soft_cpu, &subjects[..]) {
        soft::runs(cpu, subject.session.trace().program.isa)?;
    }
    if let Some(output) = output {
        output.write(html::page(&subjects))?;
        if output.path() != Path::new("-") {
            say!("course in {}", crate::output::name(output.path()));
        }
    } else if drawn {
        let at = subjects.iter().position(|subject| Some(&subject.name) == asked.as_ref());
        play(subjects, at.unwrap_or(0))?;
    } else {
        let mut out = Out::stdout();
        for subject in subjects {
            handout::write(&mut out, subject)?;
        }
        out.flush()?;
    }
    Ok(DONE)
}

/// Plays the course until its reader has enough.
fn play(subjects: Vec<Subject>, at: usize) -> io::Result<()> {
    let mut play = Play::new(subjects, at);
    let mut terminal = Terminal::take(false)?;
    terminal.show(&screen::draw(&play, terminal.size()))?;
    loop {
        match terminal.wait(LOOK)? {
            Input::Key(key) if !play.press(key) => break,
            Input::End => break,
            Input::Key(_) | Input::Redraw => {
                terminal.show(&screen::draw(&play, terminal.size()))?
            }
            _ => {}
        }
    }
    terminal.end();
    Ok(())
}

fn list() -> Result {
    let mut out = Out::stdout();
    Table::<(), &Lesson>::new()
        .word("", "lesson", |(), lesson| Cell::Word(lesson.name.into()))
        .word("", "CPU", |(), lesson| Cell::Word(lesson.cpu.into()))
        .prose("", "what it teaches", |(), lesson| Cell::Word(lesson.title.into()))
        .write_text(&mut out, &mut (), LESSONS.iter().copied())?;
    done(&mut out)
}
