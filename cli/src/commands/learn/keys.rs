//! The state of the course on a terminal, and what each key does.

use lab::learn::{Bits, View};

use super::{Subject, cpus, words};
use crate::present::terminal::{Key, control};

/// The content of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The lesson's text.
    Text,
    /// Program, ring and registers.
    Steps,
    /// The lesson's text, and a question with the answer typed so far.
    Question(usize, String),
}

/// The state of the course.
pub(super) struct Play {
    pub(super) subjects: Vec<Subject>,
    /// Which of them.
    pub(super) at: usize,
    pub(super) page: Page,
    /// Which bit of the control registers has the focus.
    pub(super) focus: usize,
    /// The line of the program that has it.
    pub(super) line: usize,
    /// Slots scrolled past, if not all fit.
    pub(super) scrolled: Option<usize>,
    pub(super) message: String,
}

impl Play {
    pub(super) fn new(subjects: Vec<Subject>, at: usize) -> Play {
        let page = Page::Text;
        let (focus, line, scrolled, message) = (0, 0, None, String::new());
        let mut play = Play { subjects, at, page, focus, line, scrolled, message };
        play.follow();
        play
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subjects[self.at]
    }

    fn subject_mut(&mut self) -> &mut Subject {
        &mut self.subjects[self.at]
    }

    /// The bits that can be toggled, in Tab order.
    pub(super) fn bits(view: &View) -> Vec<(&Bits, usize)> {
        let fields = |bits: &Bits| bits.fields.len();
        view.controls.iter().flat_map(|bits| (0..fields(bits)).map(move |at| (bits, at))).collect()
    }

    /// Moves the focus to the next instruction, and the LBR stack to its newest record.
    fn follow(&mut self) {
        let session = &self.subject().session;
        self.line = session.trace().program.index(session.next()).unwrap_or(0);
        self.scrolled = None;
    }

    /// Does what a key asks for; `false` at the end.
    pub(super) fn press(&mut self, key: Key) -> bool {
        match (&self.page, key) {
            (_, Key::Char(control::C | control::D)) => return false,
            (Page::Question(..), key) => self.type_answer(key),
            (_, Key::Char('q')) => return false,
            (_, Key::Char('n' | 'N')) => self.turn(key == Key::Char('n')),
            (Page::Text, _) => self.page = Page::Steps,
            (Page::Steps, Key::Char('h' | '?')) => self.page = Page::Text,
            (Page::Steps, Key::Char('a')) => self.ask(0),
            (Page::Steps, key) => self.steps(key),
        }
        true
    }

    /// Switches to another lesson.
    fn turn(&mut self, next: bool) {
        let last = self.subjects.len() - 1;
        self.at = if next { (self.at + 1).min(last) } else { self.at.saturating_sub(1) };
        self.page = Page::Text;
        self.focus = 0;
        self.message.clear();
        self.follow();
    }

    fn ask(&mut self, number: usize) {
        let Some(question) = self.subject().questions().get(number) else {
            self.message = "this lesson has no question".to_owned();
            self.page = Page::Steps;
            return;
        };
        self.message = question.ask.to_owned();
        self.page = Page::Question(number, String::new());
    }

    fn type_answer(&mut self, key: Key) {
        let Page::Question(number, typed) = &mut self.page else { return };
        let number = *number;
        match key {
            Key::Enter if typed.trim().is_empty() => self.ask(number + 1),
            Key::Enter => {
                let typed = std::mem::take(typed);
                self.judge(number, &typed);
            }
            Key::Char(c) if !c.is_control() && typed.len() < 40 => typed.push(c),
            Key::Backspace => drop(typed.pop()),
            Key::Esc => {
                self.page = Page::Steps;
                self.message.clear();
            }
            _ => {}
        }
    }

    /// Compares an answer with the LBR stack, and moves to the next question.
    fn judge(&mut self, number: usize, typed: &str) {
        let subject = self.subject();
        let Some(lesson) = subject.lesson else { return };
        let Some(question) = lesson.questions.get(number) else { return };
        if !question.answer(lesson).is(typed, &subject.session) {
            self.message = format!("{typed}: the ring says no. {}", question.ask);
            return;
        }
        let right = format!("{}: right. {}", typed.trim(), question.why);
        self.page = Page::Steps;
        self.message = if number + 1 < lesson.questions.len() {
            self.ask(number + 1);
            format!("{right} Next: {}", self.message)
        } else {
            format!("{right} That was the last question; n goes on to the next lesson.")
        };
    }

    fn steps(&mut self, key: Key) {
        self.message.clear();
        let session = &mut self.subject_mut().session;
        let done = match key {
            Key::Char(' ' | 's') | Key::Right => session.step(),
            Key::Char('b') | Key::Left => session.back(),
            Key::Char('r') => session.run(),
            Key::Home | Key::Char('0') => {
                session.restart();
                true
            }
            other => return self.controls(other),
        };
        if !done {
            self.message = "there is nothing further that way".to_owned();
        }
        self.follow();
    }

    fn controls(&mut self, key: Key) {
        let lines = self.subject().session.trace().program.lines.len();
        match key {
            Key::Up => self.line = self.line.saturating_sub(1),
            Key::Down => self.line = (self.line + 1).min(lines.saturating_sub(1)),
            Key::PageDown => self.scrolled = Some(self.scrolled.unwrap_or(0) + 8),
            Key::PageUp => self.scrolled = Some(self.scrolled.unwrap_or(0).saturating_sub(8)),
            Key::Char('p') => self.breakpoint(),
            Key::Tab => self.move_focus(1),
            Key::BackTab => self.move_focus(-1),
            Key::Char('t') | Key::Enter => self.toggle(),
            Key::Char('c') => self.change_cpu(1),
            Key::Char('C') => self.change_cpu(-1),
            Key::Char('e') if !self.subject_mut().session.toggle_erratum() => {
                self.message = "this lesson is about no erratum".to_owned();
            }
            _ => {}
        }
    }

    fn breakpoint(&mut self) {
        let line = self.line;
        let session = &mut self.subject_mut().session;
        let Some(line) = session.trace().program.lines.get(line) else { return };
        let address = line.address;
        if !session.breakpoints.remove(&address) {
            session.breakpoints.insert(address);
        }
    }

    fn move_focus(&mut self, by: isize) {
        let view = View::of(&self.subject().session);
        let count = Play::bits(&view).len().max(1);
        self.focus = (self.focus % count).checked_add_signed(by).map_or(count - 1, |at| at % count);
    }

    fn toggle(&mut self) {
        let view = View::of(&self.subject().session);
        let bits = Play::bits(&view);
        let Some((bits, field)) = bits.get(self.focus % bits.len().max(1)) else { return };
        let Some(field) = bits.fields.get(*field) else { return };
        self.message = match self.subject_mut().session.toggle(bits.msr, field.mask()) {
            Ok(()) => format!("{}: {}", field.name, field.meaning(bits.value ^ field.mask())),
            Err(refused) => refused.to_string(),
        };
    }

    fn change_cpu(&mut self, by: isize) {
        let session = &mut self.subject_mut().session;
        let cpus = cpus(&session.trace().program);
        let now = cpus.iter().position(|cpu| cpu.key == session.state().cpu.key);
        // From a CPU that is none of them to the first, or the last.
        let from = now.unwrap_or(if by > 0 { cpus.len() - 1 } else { 0 });
        let to = from.checked_add_signed(by).map_or(cpus.len() - 1, |at| at % cpus.len());
        let Some(cpu) = cpus.into_iter().nth(to) else { return };
        let refused = session.change_cpu(cpu);
        self.message = match refused {
            Some(refused) => format!("{refused}; everything is recorded"),
            None => format!("the same steps on {}", words::cpu(session.state()).0),
        };
    }
}
