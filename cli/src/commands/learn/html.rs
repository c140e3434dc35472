//! The course as a page: every state is computed here, the page plays them.

use std::collections::HashMap;

use lab::learn::{Answer, Session, View};
use lbr_msr::soft::SoftCpu;
use maud::{PreEscaped, html};
use serde::Serialize;

use super::{CPUS, Subject, words};
use crate::present::page;

const STYLE: &str = include_str!("learn.css");
const SCRIPT: &str = include_str!("learn.js");

/// A lesson, for the page. Texts are indices into `texts`, so that each stands
/// there once.
#[derive(Serialize)]
struct Played<'a> {
    name: &'a str,
    title: &'a str,
    text: &'a [String],
    code: Vec<[String; 4]>,
    questions: Vec<Asked>,
    runs: Vec<Run>,
    texts: Vec<String>,
}

#[derive(Serialize)]
struct Asked {
    ask: &'static str,
    why: &'static str,
    /// Whatever may be typed.
    answers: Vec<String>,
}

/// The program's run on one CPU, with at most one bit toggled before.
#[derive(Serialize)]
struct Run {
    cpu: String,
    lacks: String,
    toggled: Option<&'static str>,
    controls: Vec<Control>,
    slots: usize,
    moments: Vec<Moment>,
}

#[derive(Serialize)]
struct Control {
    name: String,
    fields: Vec<(&'static str, u8, String, String)>,
}

/// A state, as what is not as in the one before.
#[derive(Serialize)]
struct Moment {
    /// The line of the code that comes next.
    next: Option<usize>,
    happened: usize,
    newest: u32,
    /// Slot, FROM, TO, INFO, decoded.
    slots: Vec<[usize; 5]>,
    marked: Vec<u32>,
    values: Vec<usize>,
}

#[derive(Default)]
struct Texts {
    all: Vec<String>,
    index: HashMap<String, usize>,
}

impl Texts {
    fn index(&mut self, text: String) -> usize {
        let next = self.all.len();
        *self.index.entry(text).or_insert_with_key(|text| {
            self.all.push(text.clone());
            next
        })
    }
}

/// The page.
pub(super) fn page(subjects: &[Subject]) -> String {
    let played: Vec<Played<'_>> = subjects.iter().map(played).collect();
    // Nothing in it can end the element that it stands in.
    let data = serde_json::to_string(&played).unwrap_or_default().replace('<', "\\u003c");
    let content = html! {
        h1 { "Branch records, step by step" }
        p.faint {
            "A software LBR, modelled and not measured, and so are its predictions and cycles. Keys: "
            kbd { "→" } " step, " kbd { "←" } " back, " kbd { "r" } " run, " kbd { "Home" } " start, "
            kbd { "↑" } kbd { "↓" } " choose a line, " kbd { "p" } " breakpoint, " kbd { "c" } " CPU, "
            kbd { "n" } kbd { "N" } " lesson, " kbd { "a" } " answer."
        }
        nav aria-label="Lessons" { ul #lessons {} }
        h2 #title {}
        div #text {}
        div.panes {
            section aria-label="Program" {
                h3 #progress {}
                div.scroll tabindex="0" role="region" aria-label="Program" { table { tbody #code {} } }
            }
            section aria-label="Ring" {
                h3 { label for="cpu" { "CPU " } select #cpu {} }
                p.faint #lacks {}
                div.scroll tabindex="0" role="region" aria-label="Ring" {
                    table {
                        thead { tr { @for head in ["slot", "FROM", "TO", "INFO", "decoded"] { th scope="col" { (head) } } } }
                        tbody #ring {}
                    }
                }
            }
        }
        p #happened role="status" {}
        div #controls {}
        form #question hidden {
            label for="answer" id="ask" {}
            " " input #answer type="text" autocomplete="off" spellcheck="false";
            " " button type="submit" { "Answer" }
            p #verdict role="status" {}
        }
        script type="application/json" id="course" { (PreEscaped(data)) }
        script { (PreEscaped(SCRIPT)) }
    };
    page::page("Branch records, step by step", &content, STYLE)
}

fn played(subject: &Subject) -> Played<'_> {
    let mut texts = Texts::default();
    let first = {
        let mut session = subject.session.clone();
        session.restart();
        session
    };
    let mut runs = vec![run(first.clone(), None, &mut texts)];
    // Of somebody's program, which may be long, no bits can be toggled.
    if subject.lesson.is_some() {
        let view = View::of(&first);
        for field in view.controls.iter().flat_map(|bits| &bits.fields) {
            let mut session = first.clone();
            if session.toggle_named(field.name).is_ok() {
                runs.push(run(session, Some(field.name), &mut texts));
            }
        }
    }
    let others = CPUS.iter().filter_map(|name| SoftCpu::preset(name).ok());
    for cpu in others.filter(|cpu| cpu.key != first.state().cpu.key) {
        let mut session = first.clone();
        let refused = session.change_cpu(cpu);
        session.begin_here();
        let mut run = run(session, None, &mut texts);
        run.lacks = match refused {
            Some(refused) => format!("{}; {refused}; everything is recorded", run.lacks),
            None => run.lacks,
        };
        runs.push(run);
    }
    let program = &subject.session.trace().program;
    let line = |line: &lab::learn::Line| {
        let address = format!("{:x}", line.address);
        [
            address,
            words::label(line).to_owned(),
            words::instruction(program, line),
            line.source.clone(),
        ]
    };
    Played {
        name: &subject.name,
        title: &subject.title,
        text: &subject.text,
        code: program.lines.iter().map(line).collect(),
        questions: asked(subject),
        runs,
        texts: texts.all,
    }
}

fn asked(subject: &Subject) -> Vec<Asked> {
    let Some(lesson) = subject.lesson else { return Vec::new() };
    let program = &subject.session.trace().program;
    let questions = lesson.questions.iter().map(|question| {
        let answers = match question.answer(lesson) {
            Answer::Number(number) => vec![number.to_string(), format!("{number:#x}")],
            Answer::Address(address) => {
                let name = program.name(address);
                [format!("{address:#x}"), format!("{address:x}")].into_iter().chain(name).collect()
            }
            Answer::Nothing => vec!["none".to_owned()],
        };
        Asked { ask: question.ask, why: question.why, answers }
    });
    questions.collect()
}

/// Every state from the present one to the end.
fn run(mut session: Session, toggled: Option<&'static str>, texts: &mut Texts) -> Run {
    let (cpu, lacks) = words::cpu(session.state());
    let view = View::of(&session);
    let control = |bits: &lab::learn::Bits| Control {
        name: format!("{} ({})", bits.register.name(), bits.msr),
        fields: bits
            .fields
            .iter()
            .map(|field| (field.name, field.low, field.meaning(field.mask()), field.meaning(0)))
            .collect(),
    };
    let controls = view.controls.iter().map(control).collect();
    let slots = view.slots.len();
    let mut moments = Vec::new();
    let mut before: Option<View> = None;
    session.begin_here();
    loop {
        let view = View::of(&session);
        moments.push(moment(&session, &view, before.as_ref(), texts));
        before = Some(view);
        if !session.step() {
            break;
        }
    }
    Run { cpu, lacks, toggled, controls, slots, moments }
}

fn moment(session: &Session, view: &View, before: Option<&View>, texts: &mut Texts) -> Moment {
    let program = &session.trace().program;
    let caps = &session.state().cpu.caps;
    let mut slots = Vec::new();
    for (at, slot) in view.slots.iter().enumerate() {
        let was = before.and_then(|before| before.slots.get(at)).map(|was| was.raw);
        if was == Some(slot.raw) {
            continue;
        }
        let registers = words::registers(caps, slot);
        let mut raw = |name: &str| {
            let found = registers.iter().find(|register| register.0 == name);
            texts.index(found.map_or_else(|| "-".to_owned(), |(_, _, value)| format!("{value:#x}")))
        };
        let [from, to, info] = ["FROM", "TO", "INFO"].map(&mut raw);
        let decoded = slot.entry.map_or_else(String::new, |entry| words::record(program, &entry));
        slots.push([at, from, to, info, texts.index(decoded)]);
    }
    Moment {
        next: program.index(session.next()),
        happened: texts.index(words::told(session, view)),
        newest: view.newest_first().next().map_or(0, |slot| slot.index),
        slots,
        marked: view.slots.iter().filter(|slot| slot.changed).map(|slot| slot.index).collect(),
        values: view
            .controls
            .iter()
            .map(|bits| texts.index(format!("{:#x}", bits.value)))
            .collect(),
    }
}
