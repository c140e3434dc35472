//! Arm's BRBE registers. They are system registers: they have no MSR address.

use super::{Entry, Field, Place, words};

const SOURCE: &str = "BRBE";

const fn flag(name: &'static str, bit: u8, set: &'static str, clear: &'static str) -> Field {
    super::flag(name, bit, set, clear, SOURCE)
}

const INF: &[Field] = &[
    Field::value("VALID", 1, 0, "which addresses were recorded", words::brbe_valid, SOURCE),
    flag("MPRED", 5, "mispredicted", "predicted"),
    Field::value("EL", 7, 6, "exception level", words::brbe_el, SOURCE),
    Field::value("TYPE", 13, 8, "type of the branch or exception", words::brbe_type, SOURCE),
    flag("T", 16, "inside a transaction", "not inside a transaction"),
    flag(
        "LASTFAILED",
        17,
        "a transaction failed before this record",
        "no transaction failed before",
    ),
    Field::value("CC_MANT", 39, 32, "mantissa of the cycle count", words::brbe_cycles, SOURCE),
    Field::value("CC_EXP", 45, 40, "exponent of the cycle count", words::brbe_exponent, SOURCE),
    flag("CCU", 46, "the cycle count is unknown", "the cycle count is known"),
];

const ADDRESS: &[Field] = &[Field::value("ADDRESS", 63, 0, "address", words::address, SOURCE)];

const IDR0: &[Field] = &[
    Field::value("NUMREC", 7, 0, "number of records", words::brbe_numrec, SOURCE),
    Field::value("FORMAT", 11, 8, "format of records", words::number, SOURCE),
    Field::value("CC", 15, 12, "cycle counter", words::brbe_counter, SOURCE),
];

const CR: &[Field] = &[
    flag("E0BRE", 0, "branches at EL0 are recorded", "branches at EL0 are not recorded"),
    flag(
        "ExBRE",
        1,
        "branches at this exception level are recorded",
        "branches at this exception level are not recorded",
    ),
    flag("CC", 3, "cycles are counted", "cycles are not counted"),
    flag("MPRED", 4, "mispredictions are recorded", "mispredictions are not recorded"),
    Field::value("TS", 6, 5, "clock of the timestamp", words::brbe_clock, SOURCE),
    flag(
        "FZP",
        8,
        "a counter overflow freezes recording",
        "a counter overflow does not freeze recording",
    ),
    flag("FZPSS", 9, "a snapshot freezes recording", "a snapshot does not freeze recording"),
    flag("ERTN", 22, "exception returns are recorded", "exception returns are not recorded"),
    flag("EXCEPTION", 23, "exceptions are recorded", "exceptions are not recorded"),
];

const FCR: &[Field] = &[
    flag(
        "LASTFAILED",
        6,
        "a transaction failed after the newest record",
        "no transaction failed after it",
    ),
    flag("PAUSED", 7, "recording is paused", "recording is not paused"),
    flag("EnI", 16, "the types below are left out", "the types below are recorded"),
    flag("DIRECT", 17, "direct branches match", "direct branches do not match"),
    flag("INDIRECT", 18, "indirect branches match", "indirect branches do not match"),
    flag("RTN", 19, "returns match", "returns do not match"),
    flag("INDCALL", 20, "indirect calls match", "indirect calls do not match"),
    flag("DIRCALL", 21, "direct calls match", "direct calls do not match"),
    flag(
        "CONDDIR",
        22,
        "conditional direct branches match",
        "conditional direct branches do not match",
    ),
    Field::value("BANK", 29, 28, "records that can be read", words::brbe_bank, SOURCE),
];

const TS: &[Field] = &[Field::value("TS", 63, 0, "timestamp", words::number, SOURCE)];

const fn entry(
    name: &'static str,
    place: Place,
    summary: &'static str,
    fields: &'static [Field],
) -> Entry {
    Entry {
        name,
        aliases: &[],
        place,
        on: &[],
        variant: Some("Arm"),
        summary,
        source: SOURCE,
        fields,
    }
}

/// op0 is 2 and CRn is 9 for every register that exists once.
const fn once(op1: u8, crm: u8, op2: u8) -> Place {
    Place::System { op1, crm, op2 }
}

/// BRBINF, BRBSRC and BRBTGT of each record of a bank; `op2` tells them apart.
const fn each(op2: u8) -> Place {
    Place::SystemEach { count: 32, op2 }
}

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "BRBINF{n}_EL1",
        each(0),
        "what is known about this record; record 0 of a bank is its newest",
        INF,
    ),
    entry("BRBSRC{n}_EL1", each(1), "where the branch of this record came from", ADDRESS),
    entry("BRBTGT{n}_EL1", each(2), "where the branch of this record went", ADDRESS),
    entry("BRBINFINJ_EL1", once(1, 1, 0), "information of a record to be injected", INF),
    entry("BRBSRCINJ_EL1", once(1, 1, 1), "source of a record to be injected", ADDRESS),
    entry("BRBTGTINJ_EL1", once(1, 1, 2), "target of a record to be injected", ADDRESS),
    entry("BRBIDR0_EL1", once(1, 2, 0), "what BRBE can do", IDR0),
    entry("BRBCR_EL1", once(1, 0, 0), "at which exception levels what is recorded", CR),
    entry("BRBCR_EL2", once(4, 0, 0), "the same, at EL2", CR),
    entry("BRBCR_EL12", once(5, 0, 0), "BRBCR_EL1, as EL2 reaches it with VHE", CR),
    entry("BRBFCR_EL1", once(1, 0, 1), "which types are recorded, which bank is read", FCR),
    entry(
        "BRBTS_EL1",
        once(1, 0, 2),
        "when the records were frozen, in the clock that BRBCR.TS names",
        TS,
    ),
];
