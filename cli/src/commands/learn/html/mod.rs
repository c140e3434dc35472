//! The course as a page: every state is computed here, the page plays them.

mod states;

use lab::learn::{Answer, Line};
use maud::{PreEscaped, html};
use serde::Serialize;

use super::{Subject, cpus, words};
use crate::present::page;
use states::{Free, Run, States};

const STYLE: &str = include_str!("learn.css");
const SCRIPT: &str = include_str!("learn.js");

/// A lesson, for the page.
#[derive(Serialize)]
struct Played<'a> {
    name: &'a str,
    title: &'a str,
    text: &'a [String],
    code: Vec<[String; 4]>,
    /// For each number of steps: the line of code to run next.
    next: Vec<Option<usize>>,
    questions: Vec<Asked>,
    runs: Vec<Run>,
    states: States,
}

#[derive(Serialize)]
struct Asked {
    ask: &'static str,
    why: &'static str,
    /// The accepted answers.
    answers: Vec<String>,
}

pub(super) fn page(subjects: &[Subject]) -> String {
    let played: Vec<Played<'_>> = subjects.iter().map(played).collect();
    // Escapes `<`, so that no text can end the script element.
    let data = serde_json::to_string(&played).unwrap_or_default().replace('<', "\\u003c");
    let content = html! {
        h1 { "Branch records, step by step" }
        p.faint {
            "A software LBR, modelled and not measured, and so are its predictions and cycles. Keys: "
            kbd { "→" } " step, " kbd { "←" } " back, " kbd { "r" } " run, " kbd { "Home" } " start, "
            kbd { "↑" } kbd { "↓" } " choose a line, " kbd { "p" } " breakpoint, " kbd { "c" } " CPU, "
            kbd { "n" } kbd { "N" } " lesson, " kbd { "Tab" } kbd { "Enter" } " toggle a bit, "
            kbd { "a" } " answer. A bit can be toggled at any step and back at any later one; before the first step, two can."
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
                svg #dial role="img" viewBox="-100 -100 200 200" {}
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
    let mut states = States::default();
    let mut first = subject.session.clone();
    first.restart();
    // In a user's program, which may be long, bits cannot be toggled.
    let free = |free| if subject.lesson.is_some() { free } else { Free::Nothing };
    let mut runs = vec![states.run(first.clone(), free(Free::Any))];
    let others = cpus(&subject.session.trace().program).into_iter();
    for cpu in others.filter(|cpu| cpu.key != first.state().cpu.key) {
        let mut session = first.clone();
        let refused = session.change_cpu(cpu);
        let mut run = states.run(session, free(Free::First));
        if let Some(refused) = refused {
            run.lacks += &format!("; {refused}; everything is recorded");
        }
        runs.push(run);
    }
    let trace = subject.session.trace();
    let program = &trace.program;
    let line = |line: &Line| {
        let (address, label) = (format!("{:x}", line.address), words::label(line).to_owned());
        [address, label, words::instruction(program, line), line.source.clone()]
    };
    let next = trace.steps.iter().map(|step| step.at).chain([trace.end]);
    Played {
        name: &subject.name,
        title: &subject.title,
        text: &subject.text,
        code: program.lines.iter().map(line).collect(),
        next: next.map(|at| program.index(at)).collect(),
        questions: asked(subject),
        runs,
        states,
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
