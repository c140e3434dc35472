//! Combines a recording with the code of a function.

use std::collections::BTreeSet;

use lbr_msr::disasm::{Disassembler, Syntax};
use lbr_msr::insn::{BranchInsn, CodeBytes, Insn};

use super::find;
use super::{Annotated, Branch, FindError, Instruction, Stretch, Target, Timed, Went};
use crate::code::maps::{Location, Maps};
use crate::code::straight;
use crate::views::flow::{Block, Flow, Site};

/// The longest code to show, in bytes. No function is longer, unless the file is damaged.
const LONGEST: u64 = 4 << 20;

/// Annotates a function.
///
/// # Errors
/// [`FindError::NoCode`] if its file has no code bytes for it, [`FindError::TooLong`] above 4 MiB.
pub fn annotate(
    flow: &mut Flow,
    function: &Stretch,
    syntax: Syntax,
) -> Result<Annotated, FindError> {
    if flow.maps.is_named_file(function.file) {
        let (what, why) = (function.name.clone(), find::without_code(&mut flow.maps, function));
        return Err(FindError::NoCode { what, why });
    }
    if function.len > LONGEST {
        let Stretch { name, len, .. } = function.clone();
        return Err(FindError::TooLong { name, len });
    }
    let complete = flow.is_complete();
    // FROM of a software LBR is never the compare before the branch.
    let fuses = flow.quality.software < flow.quality.samples;
    let Flow { blocks, sites, maps, block_quality, .. } = flow;
    let blocks: Vec<&Block> = blocks.iter().filter(|block| function.is_in(block)).collect();
    let sites: Vec<&Site> =
        sites.iter().filter(|site| function.distance(site.location).is_some()).collect();
    let mut ran: Vec<(u64, u64)> =
        blocks.iter().filter(|block| block.decoded).map(|block| function.ends(block)).collect();
    ran.sort_unstable();
    let known: BTreeSet<u64> = {
        let entries = ran.iter().map(|(entry, _)| *entry);
        entries.chain(sites.iter().filter_map(|site| function.distance(site.location))).collect()
    };

    let mut listing = Listing { function, maps, instructions: Vec::new(), insns: Vec::new() };
    let isa = listing.maps.isa(function.file);
    listing.sweep(&known, &ran, &mut Disassembler::of(isa, syntax));
    if listing.instructions.is_empty() {
        let what = format!("{} ({})", function.name, function.path);
        return Err(FindError::NoCode { what, why: find::without_code(listing.maps, function) });
    }
    let contradicted = blocks.iter().filter(|block| !block.decoded);
    let contradicted = contradicted.fold(0, |sum: u64, block| sum.saturating_add(block.count));
    let exact = complete && contradicted == 0;

    let is_site = |exit| sites.iter().any(|site| function.distance(site.location) == Some(exit));
    let fused = |exit: u64| fuses && is_site(exit);
    let decoded = blocks.iter().copied().filter(|block| block.decoded);
    let spans: Vec<(&Block, usize, usize)> = decoded
        .filter_map(|block| {
            let (entry, exit) = function.ends(block);
            let (first, last) = listing.span(entry, exit, &fused)?;
            Some((block, first, last))
        })
        .collect();
    let counts = counts(&spans, listing.instructions.len());
    for (insn, count) in listing.instructions.iter_mut().zip(counts) {
        insn.count = (count > 0 || exact).then_some(count);
    }
    for site in &sites {
        listing.branch(site, exact);
    }
    listing.lead(&spans);
    let timed = listing.timed(&blocks, &fused);
    Ok(Annotated {
        function: function.clone(),
        isa,
        instructions: listing.instructions,
        blocks: timed,
        exact,
        contradicted,
        filtered: block_quality.filtered,
    })
}

impl Stretch {
    /// The distance of a location from its start. Negative before it.
    fn offset(&self, location: Location) -> Option<i128> {
        Some(i128::from(location.in_file(self.file)?) - i128::from(self.offset))
    }

    fn is_in(&self, block: &Block) -> bool {
        let Some(entry) = self.offset(block.entry_location) else { return false };
        let exit = entry + i128::from(block.exit.wrapping_sub(block.entry));
        entry < i128::from(self.len) && exit >= 0
    }

    /// Entry and exit, clipped to the function.
    fn ends(&self, block: &Block) -> (u64, u64) {
        let entry = self.offset(block.entry_location).unwrap_or(0);
        let exit = entry + i128::from(block.exit.wrapping_sub(block.entry));
        let last = i128::from(self.len.saturating_sub(1));
        (entry.max(0) as u64, exit.clamp(0, last) as u64)
    }
}

struct Listing<'a> {
    function: &'a Stretch,
    maps: &'a mut Maps,
    instructions: Vec<Instruction>,
    /// Each instruction with its offset in the function.
    insns: Vec<(u64, Insn)>,
}

impl Listing<'_> {
    /// Decodes from the first byte to the last. `known` are offsets at which an instruction starts,
    /// `ran` the executed blocks. If there is data among the code, executed code determines where
    /// instructions start.
    fn sweep(&mut self, known: &BTreeSet<u64>, ran: &[(u64, u64)], disasm: &mut Disassembler) {
        let mut offset = 0;
        while offset < self.function.len {
            let address = self.function.address.wrapping_add(offset);
            let location = self.function.location(address);
            let Some(CodeBytes { isa, mut bytes }) = self.maps.code(location) else { break };
            let mut text = disasm.text(&bytes, address);
            let len = u64::from(text.as_ref().map_or(isa.alignment(), |text| text.len));
            let next = known.range(offset + 1..offset + len).next();
            let covered = || ran.iter().any(|(entry, exit)| (*entry..=*exit).contains(&offset));
            if let Some(next) = next.filter(|_| !covered()) {
                bytes.truncate((next - offset) as usize);
                text = None;
            } else {
                bytes.truncate(len as usize);
            }
            let insn = match text {
                Some(_) => isa.decode(&bytes, address),
                None => Insn::Invalid,
            };
            let named = if offset > 0 { self.maps.name(location) } else { None };
            let label = named.filter(|named| named.offset == 0).map(|named| named.name);
            let branch = match insn {
                Insn::Branch(branch) => Some(self.new_branch(&branch)),
                Insn::Straight { .. } | Insn::Invalid => None,
            };
            self.insns.push((offset, insn));
            offset += bytes.len().max(1) as u64;
            let source = self.maps.source(location);
            let count = None;
            let new =
                Instruction { address, bytes, text, label, source, leads: false, count, branch };
            self.instructions.push(new);
        }
        // Targets are resolved after every instruction has its index.
        let branches = self.instructions.iter_mut().filter_map(|insn| insn.branch.as_mut());
        for target in branches.filter_map(|branch| branch.target.as_mut()) {
            let offset = target.address.wrapping_sub(self.function.address);
            target.inside = index(&self.insns, offset);
        }
    }

    fn new_branch(&mut self, branch: &BranchInsn) -> Branch {
        let target = branch.target.map(|to| {
            let name = self.maps.name(self.function.location(to));
            let name = name.map(|named| (named.name, named.offset));
            Target { address: to, inside: None, name }
        });
        Branch {
            branch_type: branch.branch_type,
            conditional: branch.is_conditional(),
            target,
            taken: 0,
            not_taken: 0,
            taken_share: None,
            taken_interval: None,
            known: 0,
            mispredicted: None,
            mispredict_interval: None,
            went: Vec::new(),
        }
    }

    /// Indexes of the first and last instruction of a block, given the offsets of its ends.
    fn span(&self, entry: u64, exit: u64, fused: &impl Fn(u64) -> bool) -> Option<(usize, usize)> {
        let first = self.insns.partition_point(|(offset, _)| *offset < entry);
        let mut last = self.insns.partition_point(|(offset, _)| *offset <= exit).checked_sub(1)?;
        // CPUs that fuse a compare and a branch record the compare's address.
        let next = self.insns.get(last + 1);
        if let (Some((_, Insn::Straight { .. })), Some((offset, Insn::Branch(branch)))) =
            (self.insns.get(last), next)
            && branch.is_conditional()
            && fused(*offset)
        {
            last += 1;
        }
        (first <= last).then_some((first, last))
    }

    /// Adds the counts of a branch to its instruction.
    fn branch(&mut self, site: &Site, exact: bool) {
        let (function, insns) = (self.function, &self.insns);
        let inside = |location| function.distance(location).and_then(|at| index(insns, at));
        let Some(at) = inside(site.location) else { return };
        let mut went = Vec::new();
        for target in &site.targets {
            let inside = inside(target.location);
            let name = self.maps.name(target.location).map(|named| (named.name, named.offset));
            let count = target.count;
            went.push(Went { target: Target { address: target.to, inside, name }, count });
        }
        let insn = &mut self.instructions[at];
        // Interrupts can leave from any instruction.
        let Some(branch) = insn.branch.as_mut() else { return };
        let not_taken = site.not_taken.unwrap_or(0);
        branch.taken = site.taken;
        branch.not_taken = not_taken;
        branch.went = went;
        branch.known = site.known;
        branch.mispredicted = site.mispredicted;
        let executed = site.taken.saturating_add(not_taken);
        if branch.conditional && site.not_taken.is_some() {
            let all = (executed > 0).then(|| site.taken as f64 / executed as f64);
            branch.taken_share = if exact { all } else { site.outcomes().ratio() };
        }
        if !exact {
            branch.taken_interval = branch.taken_share.and_then(|_| site.outcomes().interval());
            branch.mispredict_interval = site.misses().interval();
        } else {
            // The first branch of a recording ends a block with an unknown start: the branch itself
            // still ran.
            insn.count = insn.count.map(|count| count.max(executed));
        }
        if let (Some(target), Some(went)) = (&mut branch.target, branch.went.first())
            && target.name.is_none()
            && target.address == went.target.address
        {
            target.name.clone_from(&went.target.name);
        }
    }

    /// Marks the first instruction of each basic block.
    fn lead(&mut self, spans: &[(&Block, usize, usize)]) {
        let mut leads: BTreeSet<usize> = [0].into();
        for (at, insn) in self.instructions.iter().enumerate() {
            let Some(branch) = &insn.branch else { continue };
            leads.insert(at + 1);
            leads.extend(branch.target.iter().filter_map(|target| target.inside));
            leads.extend(branch.went.iter().filter_map(|went| went.target.inside));
        }
        for (_, first, last) in spans {
            leads.extend([*first, last + 1]);
        }
        for at in leads {
            if let Some(insn) = self.instructions.get_mut(at) {
                insn.leads = true;
            }
        }
    }

    fn timed(&mut self, blocks: &[&Block], fused: &impl Fn(u64) -> bool) -> Vec<Timed> {
        let mut timed = Vec::new();
        for block in blocks {
            if self.function.distance(block.exit_location).is_none() {
                continue;
            }
            let (entry, exit) = self.function.ends(block);
            let Some((first, last)) = self.span(entry, exit, fused) else { continue };
            let begins = self.function.distance(block.entry_location).is_some();
            let length =
                straight::instructions(self.maps, block.entry_location, block.entry, block.exit);
            // Includes the branch after a fused compare.
            let exit_alone = self.insns.partition_point(|(offset, _)| *offset <= exit) - 1;
            let more = (last - exit_alone) as u64;
            timed.push(Timed {
                entry: block.entry,
                exit: block.exit,
                first: begins.then_some(first),
                last,
                instructions: length.filter(|_| block.decoded).map(|length| length + more),
                count: block.count,
                cycles: block.cycles.clone(),
                counters: block.counters.clone(),
            });
        }
        timed
    }
}

/// Index of the instruction that starts at an offset.
fn index(insns: &[(u64, Insn)], offset: u64) -> Option<usize> {
    insns.binary_search_by_key(&offset, |(offset, _)| *offset).ok()
}

/// The execution count of each instruction.
fn counts(spans: &[(&Block, usize, usize)], len: usize) -> Vec<u64> {
    let mut steps = vec![0i128; len + 1];
    for (block, first, last) in spans {
        steps[*first] += i128::from(block.count);
        steps[last + 1] -= i128::from(block.count);
    }
    let mut running = 0i128;
    let sums = steps.into_iter().take(len).map(|step| {
        running += step;
        u64::try_from(running).unwrap_or(u64::MAX)
    });
    sums.collect()
}
