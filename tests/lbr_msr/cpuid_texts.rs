//! CPUID dumps in the formats of many tools. The dumps are made up: headers and line formats are
//! the tools', the values those of one Core 2 (06_17) with two CPUs.

use lbr_msr::probe::{
    RecordedCpuid, probe,
    recorded::{RecordedCpu, RecordingError, parse},
};

/// The leaves in each dump: 0, 1, two of leaf 4, and 0AH.
const LEAVES: [(u32, [u32; 4]); 5] = [
    (0, [0xD, 0x756E_6547, 0x6C65_746E, 0x4965_6E69]),
    (1, [0x0001_0676, 0x0002_0800, 0x0008_E3FD, 0xBFEB_FBFF]),
    (4, [0x0400_0121, 0x01C0_003F, 0x3F, 1]),
    (4, [0x0400_0122, 0x01C0_003F, 0x3F, 1]),
    (0xA, [0x0728_0202, 0, 0, 0x503]),
];

/// A dump of both CPUs: a header per CPU, and a line per leaf.
fn dump(header: fn(u32) -> String, line: fn(u32, [u32; 4]) -> String) -> String {
    let cpu = |n| {
        let lines = LEAVES.iter().map(|(leaf, registers)| line(*leaf, *registers));
        format!("{}\n{}", header(n), lines.collect::<String>())
    };
    format!("{}{}", cpu(0), cpu(1))
}

fn dashes(leaf: u32, [a, b, c, d]: [u32; 4]) -> String {
    format!("CPUID {leaf:08X}: {a:08X}-{b:08X}-{c:08X}-{d:08X}\r\n")
}

/// Parses the numbers of the CPUs, and checks that each has all leaves.
fn cpus(text: &str) -> Vec<u32> {
    let cpus = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for RecordedCpu { cpuid, .. } in &cpus {
        let [.., (_, first), (_, second), (_, perfmon)] = LEAVES;
        let registers = |leaf, subleaf| {
            let found = cpuid.get(leaf, subleaf).unwrap_or_else(|| panic!("{leaf:x}: {text}"));
            [found.eax, found.ebx, found.ecx, found.edx]
        };
        assert_eq!((registers(4, 0), registers(4, 1)), (first, second), "{text}");
        assert_eq!(registers(0xA, 0), perfmon, "{text}");
        let caps = probe(cpuid, None).unwrap();
        assert_eq!((caps.cpu.key().as_str(), caps.depth), ("06_17", 4), "{text}");
    }
    cpus.iter().map(|cpu| cpu.cpu).collect()
}

/// AIDA64's text before the registers: lines that start with CPUID but are not leaves.
const TITLES: &str = "\
------[ Versions ]------

Program Version : AIDA64 Extreme v5.20
LLKD Version    : 4.2.768.0
BenchDLL Version: 4.1.640-x64

------[ CPU Info ]------

CPU Type          : DualCore, 2400 MHz (9 x 267)
CPU Alias         : Penryn
CPUID Manufacturer: GenuineIntel
CPUID CPU Name    : Intel(R) Core(TM)2 Duo CPU     T8300  @ 2.40GHz
CPUID Revision    : 00010676h
CPUID Properties  : ABCDEF01
IA Brand ID       : 00h

";

#[test]
fn every_header_of_instlatx64_and_aida64_is_known() {
    let headers: [fn(u32) -> String; 7] = [
        |n| format!("------[ Logical CPU #{n} ]------\n"),
        |n| format!("------[ CPUID Registers / Logical CPU #{n} ]------\n"),
        |n| format!("CPUID Registers (CPU #{n}):"),
        |n| format!("CPUID Registers (CPU #{n}{})", if n == 1 { " Virtual" } else { "" }),
        |n| format!("CPU#{n:03} AffMask: 0x{:08X}", 1 << n),
        |n| format!("Group: 0x00 Affinity mask: 0x{:016X}", 1 << n),
        // No header: leaf 0 occurs again.
        |_| String::new(),
    ];
    for header in headers {
        let text = dump(header, dashes);
        assert_eq!(cpus(&text), [0, 1]);
        assert_eq!(cpus(&format!("{TITLES}{text}")), [0, 1]);
        let after = "------[ MSR Registers / Logical CPU #0 ]------\n\nMSR 00000017: 0000-0000\n\
                     ------[ All CPUs ]------\nallcpu: Package 0 / Core 0 / Thread 0: Valid\n";
        assert_eq!(cpus(&format!("{text}{after}")), [0, 1]);
    }
    // Some count from 1; a group is 64 CPUs.
    let from_one = dump(|n| format!("CPUID Registers (CPU #{}):", n + 1), dashes);
    assert_eq!(cpus(&from_one), [1, 2]);
    let group = dump(|n| format!("Group: 0x0{n} Affinity mask: 0x0000000000000004"), dashes);
    assert_eq!(cpus(&group), [2, 66]);
}

#[test]
fn leaves_of_other_tools_are_read() {
    let lines: [fn(u32, [u32; 4]) -> String; 8] = [
        // AIDA64 and Everest in a report.
        |leaf, [a, b, c, d]| {
            let note = if leaf == 0 { " [GenuineIntel]" } else { "" };
            format!("      CPUID {leaf:08X}{:34}{a:08X}-{b:08X}-{c:08X}-{d:08X}{note} \n", "")
        },
        // x86info -r.
        |leaf, [a, b, c, d]| {
            format!(
                "eax in: 0x{leaf:08x}, eax = {a:08x} ebx = {b:08x} ecx = {c:08x} edx = {d:08x}\n"
            )
        },
        // The same names, in capitals and with commas.
        |leaf, [a, b, c, d]| {
            format!("0x{leaf:08x}: EAX=0x{a:08x}, EBX=0x{b:08x}, ECX=0x{c:08x}, EDX=0x{d:08x}\n")
        },
        // cpucontrol -i.
        |leaf, [a, b, c, d]| {
            format!("cpuid level 0x{leaf:x}: 0x{a:08x} 0x{b:08x} 0x{c:08x} 0x{d:08x}\n")
        },
        // CPU-Z.
        |leaf, [a, b, c, d]| {
            format!("\t0x{leaf:08X}\t\t0x{a:08X}\t0x{b:08X}\t0x{c:08X}\t0x{d:08X}\t\n")
        },
        // A table without prefixes.
        |leaf, [a, b, c, d]| format!("{leaf:08x} {a:08x} {b:08x} {c:08x} {d:08x}\n"),
        // Lower case, and spaces between the registers.
        |leaf, [a, b, c, d]| format!("CPUID {leaf:08x}: {a:08x} {b:08x} {c:08x} {d:08x}\n"),
        dashes,
    ];
    for line in lines {
        assert_eq!(cpus(&dump(|_| String::new(), line)), [0, 1]);
        assert_eq!(cpus(&dump(|n| format!("CPU {n}:"), line)), [0, 1]);
        assert_eq!(
            cpus(&dump(|n| format!("CPU Thread {n}\n\tAPIC ID\t{n}\n\n\tCPUID"), line)),
            [0, 1]
        );
    }
    // cpucontrol -i of a sub-leaf.
    let level = dump(
        |_| String::new(),
        |leaf, [a, b, c, d]| {
            let kind = if a == 0x0400_0122 { ", level_type 0x1" } else { "" };
            format!("cpuid level 0x{leaf:x}{kind}: 0x{a:x} 0x{b:x} 0x{c:x} 0x{d:x}\n")
        },
    );
    assert_eq!(cpus(&level), [0, 1]);
    let seventh = format!("{level}cpuid level 0x4, level_type 0x7: 0x1 0x2 0x3 0x4\n");
    assert_eq!(parse(&seventh).unwrap()[1].cpuid.get(4, 7).map(|found| found.ecx), Some(3));
    // Numbered sub-leaves.
    let numbered = "\
CPUID 00000000:00 = 0000000d 756e6547 6c65746e 49656e69 | ....GenuntelineI
CPUID 00000001:00 = 00010676 00020800 0008e3fd bfebfbff | v...............
CPUID 00000004:00 = 04000121 01c0003f 0000003f 00000001 | !...?...?.......
CPUID 00000004:01 = 04000122 01c0003f 0000003f 00000001 | ....?...?.......
CPUID 0000000a:00 = 07280202 00000000 00000000 00000503 | ..(.............
";
    assert_eq!(cpus(numbered), [0]);
}

/// `cpuid -1 -r` of two machines in one file, each with its own `CPU:` header.
#[test]
fn unnumbered_cpus_are_counted() {
    let names = |leaf: u32, [a, b, c, d]: [u32; 4]| {
        let subleaf = u32::from(a == 0x0400_0122);
        format!(
            "   0x{leaf:08x} 0x{subleaf:02x}: eax=0x{a:08x} ebx=0x{b:08x} ecx=0x{c:08x} edx=0x{d:08x}\n"
        )
    };
    assert_eq!(cpus(&dump(|_| "CPU:".into(), names)), [0, 1]);
    // A repeated dump of the same CPU adds nothing.
    assert_eq!(cpus(&dump(|_| "------[ Logical CPU #3 ]------".into(), dashes)), [3]);
}

/// A Nehalem needs leaf 1, a Skylake also leaf 7 (TSX), a CPU with Architectural LBR leaf 1CH, and
/// Zen 4 the extended leaves.
#[test]
fn unneeded_leaves_may_be_missing() {
    let intel = |highest: u32, signature: u32| {
        let leaf_0 = dashes(0, [highest, 0x756E_6547, 0x6C65_746E, 0x4965_6E69]);
        format!("{leaf_0}{}", dashes(1, [signature, 0, 0x8000, 0]))
    };
    let missing = |text: &str| match parse(text) {
        Ok(_) => None,
        Err(RecordingError::Missing { leaf, .. }) => Some(leaf),
        Err(other) => panic!("{other}"),
    };
    for (text, expected) in [
        (intel(0xB, 0x0001_06A5), None),
        (intel(0xD, 0x0001_0676), None),
        (intel(0x16, 0x0005_06E3), Some(7)),
        (intel(0x16, 0x0005_06E3) + &dashes(7, [0, 0x810, 0, 0]), None),
        (intel(0x1F, 0x0009_0672), Some(7)),
        (intel(0x1F, 0x0009_0672) + &dashes(7, [0, 0, 0, 1 << 19]), Some(0x1C)),
        // Architectural LBR is not announced.
        (intel(0x1F, 0x0009_0672) + &dashes(7, [0; 4]), None),
        // An unknown model.
        (intel(0x1F, 0x000A_06F3), Some(7)),
    ] {
        assert_eq!(missing(&text), expected, "{text}");
    }
    let amd = |signature: u32| {
        let leaf_0 = dashes(0, [0xD, 0x6874_7541, 0x444D_4163, 0x6974_6E65]);
        format!("{leaf_0}{}", dashes(1, [signature, 0, 0, 0]))
    };
    let zen_4 = amd(0x00A6_0F12) + &dashes(0x8000_0000, [0x8000_0028, 0, 0, 0]);
    let sizes = dashes(0x8000_0008, [0x3030, 0, 0, 0]);
    for (text, expected) in [
        // Zen 2 has the register pair for any extended leaves.
        (amd(0x0087_0F10), None),
        (amd(0x00A6_0F12), Some(0x8000_0000)),
        // Without leaf 80000008H, only Branch Sampling is unknown.
        (zen_4.clone(), Some(0x8000_0022)),
        (zen_4.clone() + &dashes(0x8000_0022, [5, 0x4106, 0, 0]), None),
        (zen_4.clone() + &sizes, Some(0x8000_0022)),
        (zen_4 + &dashes(0x8000_0022, [7, 0x4106, 0, 0]), None),
    ] {
        assert_eq!(missing(&text), expected, "{text}");
    }
    // Other vendors need no leaf.
    let via = dashes(0, [1, 0x746E_6543, 0x736C_7561, 0x4872_7561]) + &dashes(1, [0x6FD, 0, 0, 0]);
    assert_eq!(missing(&via), None);
}

#[test]
fn a_refusal_names_line_and_layout() {
    for (line, layout) in [
        ("CPUID 00000001: 00010676-00020800-0008E3FD", "InstLatX64"),
        ("CPUID 00000001                        none", "InstLatX64"),
        ("eax in: 0x00000001, eax = 00010676 ebx = zz", "cpuid -r"),
        ("0x00000001 0x00: eax=0x1 ecx=0x2 ebx=0x3 edx=0x4", "cpuid -r"),
        ("cpuid level 0x1: 0x00010676", "cpucontrol -i"),
        ("basic_cpuid[1]=1 2 3", "libcpuid"),
    ] {
        let error = parse(&format!("title\n\n{line}\n")).unwrap_err();
        assert!(matches!(error, RecordingError::Line { line: 3, .. }), "{line}: {error}");
        let said = error.to_string();
        assert!(said.contains("line 3") && said.contains(layout) && said.contains(line), "{said}");
    }
    assert_eq!(parse(TITLES), Err(RecordingError::Empty));
}

proptest::proptest! {
    #[test]
    fn any_text_is_handled(text in "(CPUID |CPU|0x|eax=|cpuid level |Group: |[0-9A-Fa-fé:#=, \\[\\]\n-]{1,12}){0,40}") {
        if let Ok(cpus) = parse(&text) {
            proptest::prop_assert!(cpus.iter().all(|cpu| cpu.cpuid != RecordedCpuid::new()));
        }
    }
}
