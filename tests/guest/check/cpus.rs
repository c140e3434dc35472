//! CPUs as their documents describe them, written by hand.

pub(crate) const DEBUGCTL: u32 = 0x1D9;

/// One CPU as its documents describe it.
pub(crate) struct Cpu {
    pub(crate) name: &'static str,
    pub(crate) family: u32,
    pub(crate) model: u32,
    /// IA32_PERF_CAPABILITIES\[5:0\]; none: the register does not exist.
    pub(crate) format: Option<u64>,
    pub(crate) depth: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) info: Option<u32>,
    /// Distance between the registers of two records.
    pub(crate) stride: u32,
    pub(crate) tos: Option<u32>,
    pub(crate) filter: Filter,
    pub(crate) control: u32,
    pub(crate) enable: u64,
    /// CPUID.0AH:EAX: version of the performance monitor, and its general
    /// counters.
    pub(crate) perfmon: (u32, u32),
    pub(crate) cycles: Cycles,
    /// Registers of other facilities, which this CPU lacks.
    pub(crate) absent: &'static [u32],
    /// Values that have a reserved bit, each with its register.
    pub(crate) reserved: &'static [(u32, u64)],
    /// The suppress bits of jumps swallow calls and returns of the same kind.
    pub(crate) jumps_swallow_calls: bool,
}

/// How branches are filtered.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Filter {
    None,
    /// Suppress bits in a separate register.
    Select(u32),
    /// Capture bits in the control register.
    Control,
}

/// Where a record tells cycles.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Cycles {
    None,
    /// INFO\[15:0\].
    Info,
    /// INFO\[15:0\], valid where INFO\[60\] is set.
    InfoIfBit60,
    /// TO\[63:48\].
    To,
}

const NEHALEM_LAYOUT: Cpu = Cpu {
    name: "",
    family: 6,
    model: 0,
    format: None,
    depth: 16,
    from: 0x680,
    to: 0x6C0,
    info: None,
    stride: 1,
    tos: Some(0x1C9),
    filter: Filter::Select(0x1C8),
    control: DEBUGCTL,
    enable: 1,
    perfmon: (3, 4),
    cycles: Cycles::None,
    absent: &[],
    reserved: &[],
    jumps_swallow_calls: false,
};

/// Addresses and depths: Intel SDM (late 2016) 17.4 to 17.10 and Table 17-4,
/// Linux lbr.c and amd/lbr.c; reserved bits: SDM 17.4.1, 17.7.2, 17.9.
pub(crate) const CPUS: [Cpu; 8] = [
    Cpu {
        name: "06_0F",
        perfmon: (2, 2),
        model: 0x0F,
        format: Some(2),
        depth: 4,
        from: 0x40,
        to: 0x60,
        filter: Filter::None,
        absent: &[
            0x44,
            0x64,
            0x1C8,
            0x680,
            0x6C0,
            0xDC0,
            0x1200,
            0x14CE,
            0x14CF,
            0x1500,
            0x1600,
            0xC000_010E,
            0xC001_0300,
        ],
        reserved: &[(DEBUGCTL, 1 << 16), (DEBUGCTL, 1 << 63)],
        ..NEHALEM_LAYOUT
    },
    Cpu {
        name: "06_1A",
        model: 0x1A,
        format: Some(3),
        jumps_swallow_calls: true,
        absent: &[
            0x40,
            0x60,
            0x690,
            0x6D0,
            0xDC0,
            0x1200,
            0x14CE,
            0x14CF,
            0x1500,
            0x1600,
            0xC000_010E,
            0xC001_0300,
        ],
        // No EN_CALLSTACK before Haswell.
        reserved: &[(0x1C8, 1 << 9), (0x1C8, 1 << 63), (DEBUGCTL, 1 << 16)],
        ..NEHALEM_LAYOUT
    },
    Cpu {
        name: "06_3C",
        model: 0x3C,
        format: Some(4),
        absent: &[
            0x40,
            0x60,
            0x690,
            0x6D0,
            0xDC0,
            0x1200,
            0x14CE,
            0x14CF,
            0x1500,
            0x1600,
            0xC000_010E,
            0xC001_0300,
        ],
        reserved: &[(0x1C8, 1 << 10), (DEBUGCTL, 1 << 16)],
        ..NEHALEM_LAYOUT
    },
    Cpu {
        name: "06_5E",
        perfmon: (4, 4),
        model: 0x5E,
        format: Some(5),
        depth: 32,
        info: Some(0xDC0),
        cycles: Cycles::Info,
        absent: &[0x40, 0x60, 0x1200, 0x14CE, 0x14CF, 0x1500, 0x1600, 0xC000_010E, 0xC001_0300],
        reserved: &[(0x1C8, 1 << 10), (DEBUGCTL, 1 << 16)],
        ..NEHALEM_LAYOUT
    },
    Cpu {
        name: "06_5C",
        perfmon: (4, 4),
        model: 0x5C,
        format: Some(6),
        depth: 32,
        cycles: Cycles::To,
        absent: &[
            0x40,
            0x60,
            0xDC0,
            0x1200,
            0x14CE,
            0x14CF,
            0x1500,
            0x1600,
            0xC000_010E,
            0xC001_0300,
        ],
        reserved: &[(0x1C8, 1 << 10), (DEBUGCTL, 1 << 16)],
        ..NEHALEM_LAYOUT
    },
    Cpu {
        name: "06_7A",
        perfmon: (4, 4),
        model: 0x7A,
        format: Some(7),
        depth: 32,
        info: Some(0xDC0),
        cycles: Cycles::Info,
        absent: &[0x40, 0x60, 0x1200, 0x14CE, 0x14CF, 0x1500, 0x1600, 0xC000_010E, 0xC001_0300],
        reserved: &[(0x1C8, 1 << 10), (DEBUGCTL, 1 << 16)],
        ..NEHALEM_LAYOUT
    },
    Cpu {
        name: "06_8F",
        perfmon: (5, 8),
        model: 0x8F,
        format: Some(0x3F),
        depth: 32,
        from: 0x1500,
        to: 0x1600,
        info: Some(0x1200),
        tos: None,
        filter: Filter::Control,
        control: 0x14CE,
        cycles: Cycles::InfoIfBit60,
        absent: &[0x40, 0x60, 0x1C8, 0x1C9, 0x680, 0x6C0, 0xDC0, 0xC000_010E, 0xC001_0300],
        // LBR_CTL[15:4] and [63:23]; a depth that is not a multiple of 8.
        reserved: &[(0x14CE, 1 << 4), (0x14CE, 1 << 23), (0x14CF, 31), (DEBUGCTL, 1 << 16)],
        ..NEHALEM_LAYOUT
    },
    Cpu {
        name: "19_11",
        perfmon: (0, 0),
        family: 0x19,
        model: 0x11,
        format: None,
        from: 0xC001_0300,
        to: 0xC001_0301,
        stride: 2,
        tos: None,
        filter: Filter::Select(0xC000_010E),
        control: 0xC000_010F,
        enable: 1 << 6,
        absent: &[
            0x40, 0x60, 0x1C8, 0x1C9, 0x680, 0x6C0, 0xDC0, 0x1200, 0x14CE, 0x14CF, 0x1500, 0x1600,
        ],
        reserved: &[(0xC000_010E, 1 << 9)],
        ..NEHALEM_LAYOUT
    },
];
