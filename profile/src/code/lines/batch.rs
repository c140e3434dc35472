//! Looks up many addresses at once: one chunk of the debug information after the other is parsed,
//! queried for all addresses, and dropped.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use addr2line::Context;
use gimli::{AbbreviationsCache, DebugAranges, DebugInfo, Dwarf, Reader as _, Section};

use super::known::{Known, Numbers};
use super::load::{Pieces, Reader, is_shallow};
use super::{answer, line_of};

/// Minimum number of bytes of `.debug_info` per chunk. Parsed, they take about twice as much.
const PIECE: usize = 1 << 20;
/// Maximum number of chunks: each looks through all addresses.
const PIECES: usize = 64;
/// Units that refer to each other cannot be parsed in chunks. They are processed in turns, each of
/// which parses units of this many bytes and then drops them.
const TURN: usize = 8 << 20;
/// Maximum number of turns: each reads the headers of all units again.
const TURNS: usize = 16;

/// Looks up sorted, unknown addresses chunk by chunk, in debug information whose units [stand
/// alone](stand_alone).
pub(super) fn piece_by_piece(
    dwarf: &Dwarf<Reader>,
    pieces: &Pieces,
    known: &mut Known,
    mut wanted: Vec<u64>,
) {
    let mut numbers = Numbers::default();
    let mut found = Vec::with_capacity(wanted.len());
    for units in pieces_of(dwarf) {
        if wanted.is_empty() {
            break;
        }
        let part = Arc::new(part(dwarf, units));
        if let Ok(context) = Context::from_arc_dwarf(Arc::clone(&part))
            && wanted.iter().any(|addr| has_line(&context, *addr))
            && is_shallow(&part)
        {
            pieces.let_go();
            wanted.retain(|addr| {
                let Some(frame) = frame(&context, pieces, known, &mut numbers, *addr) else {
                    return true;
                };
                found.push((*addr, frame));
                false
            });
        }
        numbers.next_piece();
        pieces.let_go();
    }
    // Addresses without result are also recorded.
    found.extend(wanted.into_iter().map(|addr| (addr, 0)));
    known.extend(found);
}

/// The same for units that refer to each other: all are open, and parsed data is dropped when it
/// reaches the size of a turn.
pub(super) fn in_turns(
    dwarf: &Arc<Dwarf<Reader>>,
    pieces: &Pieces,
    known: &mut Known,
    wanted: Vec<u64>,
) {
    let mut numbers = Numbers::default();
    let mut found = Vec::with_capacity(wanted.len());
    let mut rest = wanted.as_slice();
    let turn = TURN.max(dwarf.debug_info.reader().len() / TURNS);
    while !rest.is_empty() {
        let Ok(context) = Context::from_arc_dwarf(Arc::clone(dwarf)) else { break };
        pieces.let_go();
        let (mut units, mut open) = (HashSet::new(), 0);
        while let (Some((addr, behind)), true) = (rest.split_first(), open < turn) {
            rest = behind;
            if let Some((unit, len)) = unit(&context, pieces, *addr)
                && units.insert(unit)
            {
                open = open.saturating_add(len);
            }
            let frame = frame(&context, pieces, known, &mut numbers, *addr);
            found.push((*addr, frame.unwrap_or(0)));
        }
        numbers.next_piece();
        pieces.let_go();
    }
    found.extend(rest.iter().map(|addr| (*addr, 0)));
    known.extend(found);
}

/// Whether these units have a line for an address; this does not parse functions.
fn has_line(context: &Context<Reader>, addr: u64) -> bool {
    addr < u64::MAX && context.find_location(addr).is_ok_and(|found| found.is_some())
}

/// The innermost frame of an address; `None` if these units have none.
fn frame(
    context: &Context<Reader>,
    pieces: &Pieces,
    known: &mut Known,
    numbers: &mut Numbers,
    addr: u64,
) -> Option<u32> {
    addr.checked_add(1)?;
    let mut frames = answer(context.find_frames(addr), pieces).ok()?;
    let mut inner_first = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        inner_first.push(frame);
    }
    let mut outer = 0;
    for frame in inner_first.into_iter().rev() {
        let name = frame.function.as_ref().map(|function| &function.name);
        let source = frame.location.as_ref().and_then(line_of);
        outer = known.frame(numbers, name, source, outer);
    }
    (outer > 0).then_some(outer)
}

/// The unit of an address: its position and its length.
fn unit(context: &Context<Reader>, pieces: &Pieces, addr: u64) -> Option<(usize, usize)> {
    addr.checked_add(1)?;
    let unit = answer(context.find_dwarf_and_unit(addr), pieces)?;
    Some((unit.header.offset().0, unit.header.length_including_self()))
}

/// The ranges of units in `.debug_info`, grouped into chunks.
fn pieces_of(dwarf: &Dwarf<Reader>) -> Vec<Range<usize>> {
    let size = dwarf.debug_info.reader().len();
    let most = PIECE.max(size / PIECES);
    let (mut pieces, mut units) = (Vec::new(), dwarf.units());
    let mut piece = 0..0;
    while let Ok(Some(unit)) = units.next() {
        let len = unit.length_including_self();
        if piece.len() + len > most && !piece.is_empty() {
            pieces.push(piece.clone());
            piece.start = piece.end;
        }
        piece.end += len;
    }
    pieces.push(piece);
    pieces
}

/// The debug information of some units only. Correct only if none of them refers to another unit.
fn part(dwarf: &Dwarf<Reader>, units: Range<usize>) -> Dwarf<Reader> {
    let info = dwarf.debug_info.reader();
    // `.debug_aranges` refers to units by their offset in the whole section, which differs here.
    // Without it, each unit's own address list is read.
    let aranges = info.range(0..0);
    let mut part = Dwarf {
        debug_abbrev: dwarf.debug_abbrev.clone(),
        debug_addr: dwarf.debug_addr.clone(),
        debug_aranges: DebugAranges::from(aranges),
        debug_info: DebugInfo::from(info.range(units)),
        debug_line: dwarf.debug_line.clone(),
        debug_line_str: dwarf.debug_line_str.clone(),
        debug_macinfo: dwarf.debug_macinfo.clone(),
        debug_macro: dwarf.debug_macro.clone(),
        debug_names: dwarf.debug_names.clone(),
        debug_str: dwarf.debug_str.clone(),
        debug_str_offsets: dwarf.debug_str_offsets.clone(),
        debug_types: dwarf.debug_types.clone(),
        locations: dwarf.locations.clone(),
        ranges: dwarf.ranges.clone(),
        file_type: dwarf.file_type,
        sup: None,
        abbreviations_cache: AbbreviationsCache::new(),
    };
    part.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    part
}

/// Whether units can be read separately: no function's name is in another unit. Link-time
/// optimisation and `dwz` create references between units.
pub(super) fn stand_alone(dwarf: &Dwarf<Reader>) -> bool {
    dwarf.sup.is_none() && !refers_to_others(dwarf.debug_abbrev.reader()).unwrap_or(true)
}

fn refers_to_others(abbreviations: &Reader) -> gimli::Result<bool> {
    let mut input = abbreviations.clone();
    while !input.is_empty() {
        if input.read_uleb128()? == 0 {
            // The end of a unit's list.
            continue;
        }
        let (_tag, _has_children) = (input.read_uleb128()?, input.read_u8()?);
        loop {
            let name = gimli::DwAt(input.read_uleb128_u16()?);
            let form = gimli::DwForm(input.read_uleb128_u16()?);
            if (name, form) == (gimli::DwAt(0), gimli::DwForm(0)) {
                break;
            }
            if form == gimli::DW_FORM_implicit_const {
                input.read_sleb128()?;
            }
            let is_name = matches!(name, gimli::DW_AT_abstract_origin | gimli::DW_AT_specification);
            let is_local = matches!(
                form,
                gimli::DW_FORM_ref1
                    | gimli::DW_FORM_ref2
                    | gimli::DW_FORM_ref4
                    | gimli::DW_FORM_ref8
                    | gimli::DW_FORM_ref_udata
            );
            if is_name && !is_local {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
