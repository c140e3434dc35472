//! How much of a program's file a recording covers, and how well the file matches.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::judge::Findings;
use super::rules::{CODE_NOT_SEEN, FUNCTIONS_DIFFER, FUNCTIONS_WITHOUT_SAMPLES, OUTSIDE_BINARY};
use super::{Lint, sort};
use crate::code::demangle::demangle;
use crate::code::maps::{Location, Maps};
use crate::code::symbols::Module;
use crate::read::add;
use crate::views::flow::Flow;

/// Functions that a finding names.
const NAMED: usize = 5;

/// How far a recording covers a program's file, and matches it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BinaryCoverage {
    /// Taken branches with an end in the file.
    pub inside: u64,
    /// All taken branches.
    pub taken: u64,
    /// Whether the recorded file has the same build id; `None` if either has none.
    pub same_build: Option<bool>,
    /// Functions with recorded branches.
    pub functions: u64,
    /// Those that have the same name and size in the file; `None` if the recorded file is missing.
    pub matching: Option<u64>,
    /// Estimated share of the file's executions whose branches are in the recording: one minus the
    /// share of branches that were seen once (Good, Biometrika 40, 1953). `None` without branches.
    pub seen: Option<f64>,
}

impl Lint {
    /// Compares the recording with a program's file, and adds what is wrong to the findings.
    pub fn check_binary(&mut self, module: &mut Module) -> BinaryCoverage {
        let is_complete = self.flow.is_complete();
        let Flow { sites, maps, taken, .. } = &mut self.flow;
        let files = recorded_as(maps, module);
        let mut coverage = BinaryCoverage { taken: *taken, ..BinaryCoverage::default() };
        let known = files.iter().find_map(|file| Some((maps.build_id(*file)?, module.build_id()?)));
        coverage.same_build = known.map(|(recorded, given)| recorded == given);
        let is_same = coverage.same_build == Some(true);
        // Branches that start in a function, and branches to its first instruction, by its name and
        // size in the recorded file.
        let (mut left, mut entered) = (HashMap::new(), HashMap::new());
        let mut once = 0;
        let is_inside = |at: Location| at.file().is_some_and(|file| files.contains(&file));
        let mut function_at = |at| function(maps, at, is_same.then_some(&mut *module));
        for site in sites.iter() {
            let starts = is_inside(site.location);
            let targets = site.targets.iter().filter(|to| starts || is_inside(to.location));
            for target in targets {
                add(&mut coverage.inside, target.count);
                once += u64::from(target.count == 1);
                if is_inside(target.location)
                    && let Some((function, 0)) = function_at(target.location)
                {
                    add(entered.entry(function).or_default(), target.count);
                }
            }
            if starts && let Some((function, _)) = function_at(site.location) {
                add(left.entry(function).or_default(), site.taken);
            }
        }
        let once = if is_complete { 0 } else { once };
        coverage.seen = (coverage.inside > 0).then(|| 1.0 - once as f64 / coverage.inside as f64);
        let mut found = Findings(std::mem::take(&mut self.findings));
        let outside = coverage.taken.saturating_sub(coverage.inside);
        found.add(OUTSIDE_BINARY, outside, coverage.taken, &[]);
        found.add(CODE_NOT_SEEN, once, coverage.inside, &[]);
        coverage.functions = left.len() as u64;
        if is_same || coverage.functions > 0 {
            let given: HashSet<(&str, u64)> =
                module.functions().map(|(name, at)| (name, at.end - at.start)).collect();
            let matches = |of: &(String, u64)| given.contains(&(of.0.as_str(), of.1));
            let matching = left.keys().filter(|of| matches(of)).count();
            coverage.matching = Some(matching as u64);
            named(&mut found, FUNCTIONS_DIFFER, &left, |of| !matches(of));
            let unseen = |of: &(String, u64)| !left.contains_key(of);
            named(&mut found, FUNCTIONS_WITHOUT_SAMPLES, &entered, unseen);
        } else if coverage.same_build == Some(false) {
            let parts = [("in a file that is not there", coverage.inside)];
            found.add(FUNCTIONS_DIFFER, coverage.inside, coverage.inside, &parts);
        }
        self.findings = found.0;
        sort(&mut self.findings);
        coverage
    }
}

/// The files of the recording with the same build id; without any, those of the same name.
fn recorded_as(maps: &Maps, module: &Module) -> HashSet<usize> {
    let id = module.build_id();
    let same = |file: &usize| id.is_some() && maps.build_id(*file) == id;
    let found: HashSet<usize> = maps.files().filter(same).collect();
    if !found.is_empty() {
        return found;
    }
    let name = module.path().file_name();
    let name_of = |file: usize| Path::new(maps.path(file)?).file_name();
    maps.files().filter(|file| name.is_some() && name_of(*file) == name).collect()
}

/// The function at a location, by name and size, and the offset within it; from the recorded file
/// unless another one is the same.
fn function(
    maps: &mut Maps,
    at: Location,
    instead: Option<&mut Module>,
) -> Option<((String, u64), u64)> {
    let Location::File { file, offset } = at else { return None };
    let module = match instead {
        Some(module) => module,
        None => maps.elf(file)?,
    };
    let address = module.address_of_offset(offset)?;
    let (name, range) = module.function_at(address)?;
    Some(((name.to_owned(), range.end - range.start), address - range.start))
}

/// Adds a finding about some functions, with the hottest of them.
fn named(
    found: &mut Findings,
    rule: super::rules::Rule,
    functions: &HashMap<(String, u64), u64>,
    is: impl Fn(&(String, u64)) -> bool,
) {
    let of = functions.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let mut few: Vec<(&str, u64)> = functions
        .iter()
        .filter(|(function, _)| is(function))
        .map(|(function, count)| (function.0.as_str(), *count))
        .collect();
    let count = few.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    few.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    few.truncate(NAMED);
    let names: Vec<_> = few.iter().map(|(name, count)| (demangle(name), *count)).collect();
    let parts: Vec<(&str, u64)> =
        names.iter().map(|(name, count)| (name.as_ref(), *count)).collect();
    found.add(rule, count, of, &parts);
}
