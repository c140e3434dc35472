//! The CPU table compared with the facts it was written from.

use lbr_msr::caps::Layout;
use lbr_msr::format::LbrFormat;
use lbr_msr::soft::SoftCpu;
use lbr_msr::table::{Carries, ExpectedFormat, MODELS, Model, RecordKind, SelectScope};
use lbr_msr::{Msr, table};

use crate::support::corpus::corpus;
use crate::support::skip::skipped;

#[test]
fn well_known_rows() {
    let skylake = table::lookup(6, 0x5E).unwrap();
    assert_eq!(skylake.generation.depth, Some(32));
    assert_eq!(skylake.generation.from, Msr(0x680));
    assert_eq!(skylake.generation.to, Some(Msr(0x6C0)));
    assert_eq!(skylake.generation.info, Some(Msr(0xDC0)));
    assert_eq!(skylake.generation.tos, Some(Msr(0x1C9)));
    assert_eq!(skylake.generation.select, Some(Msr(0x1C8)));
    assert_eq!(skylake.generation.format, ExpectedFormat::Exactly(LbrFormat(5)));

    let goldmont = table::lookup(6, 0x5C).unwrap();
    assert_eq!((goldmont.generation.depth, goldmont.generation.info), (Some(32), None));

    let core2 = table::lookup(6, 0x0F).unwrap();
    assert_eq!((core2.generation.depth, core2.generation.from), (Some(4), Msr(0x40)));
    assert_eq!(core2.generation.select, None);

    let willamette = table::lookup(0xF, 0).unwrap();
    assert_eq!((willamette.generation.from, willamette.generation.to), (Msr(0x1DB), None));
    assert_eq!(willamette.generation.tos, Some(Msr(0x1DA)));

    // Silvermont reports 1: 0x32C1 on a Pentium N3530.
    let silvermont = table::lookup(6, 0x37).unwrap();
    assert_eq!(silvermont.generation.format, ExpectedFormat::Exactly(LbrFormat(1)));

    assert_eq!(table::lookup(6, 0x5E).unwrap().key(), "06_5E");
    assert_eq!(table::lookup(6, 0xFF), None);
    assert_eq!(table::lookup(0x106, 0x5E), None);
}

#[test]
fn only_nehalem_shares_its_filter_between_hyperthreads() {
    for row in &MODELS {
        let shared = row.generation.select_scope == Some(SelectScope::CoreShared);
        assert_eq!(shared, matches!(row.uarch, "Nehalem" | "Westmere"), "{}", row.key());
        assert_eq!(row.generation.select.is_some(), row.generation.select_scope.is_some());
    }
}

/// The scope in EDK2's headers: Atoms have no hyperthreads.
#[test]
fn each_generation_has_the_scope_of_its_filter() {
    for row in &MODELS {
        let expected = match row.generation.group {
            "SLM" | "GLM" | "GLP" | "TNT" => Some(SelectScope::Core),
            "NHM" => Some(SelectScope::CoreShared),
            "KNL" | "SNB" | "HSW" | "SKL" | "ARCH" => Some(SelectScope::Thread),
            _ => None,
        };
        assert_eq!(row.generation.select_scope, expected, "{}", row.key());
    }
}

#[test]
fn keys_are_unique_and_read_back() {
    for (i, row) in MODELS.iter().enumerate() {
        let again = table::lookup(row.family.into(), row.model.into()).unwrap();
        assert!(std::ptr::eq(again, row), "{} occurs twice", row.key());
        assert_eq!(table::parse_key(&row.key()), Some((row.family.into(), row.model.into())));
        assert!(!MODELS[..i].iter().any(|other| other.key() == row.key()));
    }
    assert_eq!(table::parse_key("6_5e"), Some((6, 0x5E)));
    assert_eq!(table::parse_key("06_5EH"), Some((6, 0x5E)));
    for wrong in ["", "_", "6", "065E", "06_", "_5E", "06_5EHH", "06_+5", "006_5E", "06_5E_1"] {
        assert_eq!(table::parse_key(wrong), None, "{wrong}");
    }
}

/// Every cell of the facts' machine-readable table but Linux's support and the sources' quality.
#[test]
fn every_cell_agrees_with_the_facts() {
    let Some(path) = corpus().map(|dir| dir.join("../facts/lbr-geometry.tsv")) else { return };
    let Ok(text) = std::fs::read_to_string(&path) else {
        skipped(format_args!("no {}", path.display()));
        return;
    };
    let rows: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), MODELS.len());
    for cells in rows {
        let (family, model) = table::parse_key(cells[0]).unwrap();
        let row = table::lookup(family, model).unwrap_or_else(|| panic!("{} missing", cells[0]));
        for (column, (ours, theirs)) in cells_of(row).iter().zip(&cells).enumerate() {
            // The machine-readable copy has 11 for Silvermont, but the document it copies and real
            // registers (0x32C1) have 1.
            let theirs = if column == 11 && *theirs == "11" { "1" } else { *theirs };
            assert_eq!(ours, theirs, "{} column {column}", cells[0]);
        }
    }
}

/// The start of a row in the spelling of the facts' table.
fn cells_of(row: &Model) -> Vec<String> {
    let g = row.generation;
    let arch = g.group == "ARCH";
    let hex = |msr: Option<Msr>| msr.map_or("-".into(), |msr| format!("0x{:X}", msr.0));
    let carries = |c: Carries, by_cpuid: &str| match c {
        Carries::No => "-".to_owned(),
        Carries::Yes => "y".to_owned(),
        Carries::ByCpuid => by_cpuid.to_owned(),
    };
    let caps = SoftCpu::preset(&row.key()).unwrap().caps;
    let has = |has: bool, how: &str| match has {
        _ if arch => "CPUID".to_owned(),
        true => how.to_owned(),
        false => "-".to_owned(),
    };
    let time = matches!(caps.layout, Layout::Legacy { format: LbrFormat::TIME, .. });
    vec![
        format!("{}H", row.key()),
        row.name.into(),
        row.uarch.into(),
        g.group.into(),
        match g.kind {
            RecordKind::P6Single => "p6-single",
            RecordKind::Packed32 => "packed32",
            RecordKind::Legacy => "legacy",
            RecordKind::Arch => "arch",
        }
        .into(),
        g.depth.map_or("CPUID.1CH (max 32 seen)".into(), |d| d.to_string()),
        hex(Some(g.from)),
        g.to.map_or(format!("(hi32 of 0x{:X}+n)", g.from.0), |to| hex(Some(to))),
        hex(g.info),
        if arch { "none".into() } else { hex(g.tos) },
        if arch { format!("IA32_LBR_CTL {}", hex(g.select)) } else { hex(g.select) },
        match g.format {
            ExpectedFormat::NotApplicable if g.group.starts_with("NB") => "n/a".into(),
            ExpectedFormat::NotApplicable => "n/a (no PDCM)".into(),
            ExpectedFormat::ZeroOrAbsent => "0 or n/a".into(),
            ExpectedFormat::Exactly(LbrFormat(0x3F)) => "0x3F".into(),
            ExpectedFormat::Exactly(format) => format.0.to_string(),
            ExpectedFormat::Lies { reported, real } => {
                format!("{} (lies: has MISPRED => treat as {})", reported.0, real.0)
            }
            ExpectedFormat::Either(a, b) => format!("{} or {} (Q2)", a.0, b.0),
        },
        has(caps.mispredict(), "y"),
        carries(g.tsx, "if RTM"),
        has(caps.cycles(), if time { "y (in TO)" } else { "y" }),
        carries(g.call_stack, "CPUID"),
    ]
}
