//! Usage errors, each in one sentence with the remedy.

use std::borrow::Cow;
use std::error::Error as _;
use std::path::Path;

use crate::present::joined;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The sentence for an error of the command `lbr COMMAND`, or of `lbr` itself.
pub(crate) fn sentence(error: &clap::Error, command: Option<&str>) -> String {
    let name = command.map_or_else(|| "lbr".to_owned(), |command| format!("lbr {command}"));
    let all = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let one = |kind| all(kind).into_iter().next().unwrap_or_default();
    let (arg, value) = (one(ContextKind::InvalidArg), one(ContextKind::InvalidValue));
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = one(ContextKind::InvalidSubcommand);
            let near = near(&typed, &all(ContextKind::SuggestedSubcommand), false);
            format!("no command is called {typed}{near}; {name} -h lists the commands")
        }
        ErrorKind::UnknownArgument if takes_input(command) && Path::new(&arg).is_file() => {
            format!("unexpected argument '{arg}'; name a recording with -i {arg}")
        }
        ErrorKind::UnknownArgument => {
            let near = near(&arg, &all(ContextKind::SuggestedArg), false);
            format!("unexpected argument '{arg}'{near}; {name} -h lists the options")
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            let values = one_of(&all(ContextKind::ValidValue));
            format!("{arg} needs a value{values}")
        }
        ErrorKind::InvalidValue => {
            let values = all(ContextKind::ValidValue);
            let near = near(&value, &values, true);
            format!("{} {value}: no such value{near}{}", bare(&arg), one_of(&values))
        }
        ErrorKind::ValueValidation => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            format!("{} {value}: {}", bare(&arg), plain(&why))
        }
        ErrorKind::MissingRequiredArgument => {
            let args = all(ContextKind::InvalidArg);
            let missing = joined(args.iter().map(|arg| alternatives(arg)), " and ");
            format!("missing {missing}; {name} --help has examples")
        }
        ErrorKind::ArgumentConflict => {
            let prior = all(ContextKind::PriorArg).join(", ");
            if prior == arg || prior.is_empty() {
                format!("{arg} can be given only once")
            } else {
                format!("{arg} cannot be used with {prior}")
            }
        }
        _ => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let first = text.lines().next().unwrap_or_default();
            format!("{first}; {name} -h lists the options")
        }
    }
}

/// Whether a command reads recordings that its option `-i` names.
fn takes_input(command: Option<&str>) -> bool {
    let all = crate::command();
    let found = command.and_then(|name| all.find_subcommand(name));
    found.is_some_and(|found| found.get_arguments().any(|arg| arg.get_short() == Some('i')))
}

/// `--limit` of `--limit <N>`; the name of a positional argument without its brackets.
fn bare(arg: &str) -> &str {
    arg.split(' ').next().unwrap_or(arg).trim_matches(['<', '>', '[', ']', '.'])
}

/// Possible values, for the end of a sentence.
fn one_of(values: &[String]) -> String {
    if values.is_empty() { String::new() } else { format!(" (one of {})", values.join(", ")) }
}

/// A group of arguments, `<CODE|--hex <BYTES>>`, in words.
fn alternatives(arg: &str) -> String {
    match arg.strip_prefix('<').and_then(|arg| arg.strip_suffix('>')) {
        Some(group) if group.contains('|') => group.replace('|', " or "),
        _ => arg.to_owned(),
    }
}

/// The known word that was meant, if one is near.
fn near(typed: &str, known: &[String], quiet: bool) -> String {
    let letters = typed.trim_start_matches('-').chars().count();
    // One slip, or two in a word of six letters.
    let slips = if letters >= 6 { 2 } else { usize::from(letters > 2) };
    let distance = |word: &String| strsim::damerau_levenshtein(typed, word);
    match known.iter().min_by_key(|word| distance(word)).filter(|word| distance(word) <= slips) {
        Some(word) if quiet => format!("; did you mean {word}?"),
        Some(word) => format!("; did you mean '{word}'?"),
        None => String::new(),
    }
}

/// Rust's reasons in plain words.
fn plain(why: &str) -> Cow<'_, str> {
    match why {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "not a whole number".into()
        }
        "number too large to fit in target type" => "too large".into(),
        "number too small to fit in target type" => "too small".into(),
        "invalid float literal" | "cannot parse float from empty string" => "not a number".into(),
        _ => match out_of_range(why) {
            Some((first, last)) if last >= u64::from(u32::MAX) => {
                format!("must be at least {first}").into()
            }
            Some((first, last)) => format!("must be {first} to {last}").into(),
            None => why.into(),
        },
    }
}

/// The range of `0 is not in 1..=1024`, both ends included.
fn out_of_range(why: &str) -> Option<(u64, u64)> {
    let (_, range) = why.split_once(" is not in ")?;
    let (first, last) = range.split_once("..")?;
    let (last, included) = match last.strip_prefix('=') {
        Some(last) => (last, 0),
        None => (last, 1),
    };
    let last: u64 = last.parse().ok()?;
    Some((first.parse().ok()?, last.checked_sub(included)?))
}

#[cfg(test)]
#[path = "../../tests/cli/unit/usage.rs"]
mod tests;
