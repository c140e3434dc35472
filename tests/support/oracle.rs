//! A second decoder in another style than the one under test: it works on the 64 binary digits of a
//! register as text, and returns the line that `lbr decode --json` must print. Written only from
//! the documented layouts.

use super::random::Random;

/// The type of the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    /// `0` to `7`, or a facility, as on the command line.
    pub(crate) kind: &'static str,
    /// CPUID announces HLE or RTM.
    pub(crate) tsx: bool,
    /// Width of virtual addresses.
    pub(crate) virt_bits: usize,
    /// CPUID leaf 1CH ECX.
    pub(crate) ecx: u32,
}

/// The kinds that read FROM, TO and perhaps INFO.
pub(crate) const LBR_KINDS: [&str; 15] = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "arch",
    "amd_v2",
    "amd_brs",
    "amd_single",
    "p6",
    "pm",
    "netburst",
];

/// Digit 0 is bit 63.
fn digits(value: u64) -> String {
    format!("{value:064b}")
}

/// The digits of bits `high` to `low`.
fn field(value: u64, high: usize, low: usize) -> String {
    digits(value)[63 - high..=63 - low].to_owned()
}

fn number(digits: &str) -> u64 {
    digits.chars().fold(0, |n, digit| n * 2 + u64::from(digit == '1'))
}

fn quoted(digits: &str) -> String {
    format!("\"0x{:x}\"", number(digits))
}

/// The low `width` digits, with the first repeated up to 64.
fn stretched(value: u64, width: usize) -> String {
    let low = field(value, width - 1, 0);
    quoted(&(low[..1].repeat(64 - width) + &low))
}

fn truth(value: u64, bit: usize) -> &'static str {
    if field(value, bit, bit) == "1" { "true" } else { "false" }
}

/// The keys in order; unset fields are null.
struct Line([String; 10]);

impl Line {
    fn new(from: String, to: String) -> Line {
        let mut cells = std::array::from_fn(|_| "null".to_owned());
        cells[0] = from;
        cells[1] = to;
        Line(cells)
    }
    fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0[KEYS.iter().position(|k| *k == key).unwrap()] = value.into();
    }
    fn cycles(&mut self, digits: &str) {
        self.set("cycles", number(digits).to_string());
        self.set("cycles_saturated", if digits.contains('0') { "false" } else { "true" });
    }
    fn text(&self) -> String {
        let cells: Vec<String> =
            KEYS.iter().zip(&self.0).map(|(key, cell)| format!("\"{key}\":{cell}")).collect();
        format!("{{{}}}", cells.join(","))
    }
}

pub(crate) const KEYS: [&str; 10] = [
    "from",
    "to",
    "mispredicted",
    "in_tx",
    "abort",
    "cycles",
    "cycles_saturated",
    "type",
    "spec",
    "counters",
];

const EMPTY: &str = "{\"empty\":true}";

/// The JSON line of one record.
pub(crate) fn line(said: Said, from: u64, to: u64, info: Option<u64>) -> String {
    let whole = |v: u64| stretched(v, 64);
    if said.kind == "amd_v2" {
        let mut line = Line::new(stretched(from, said.virt_bits), stretched(to, said.virt_bits));
        line.set("mispredicted", truth(from, 63));
        line.set(
            "spec",
            match field(to, 63, 62).as_str() {
                "00" => return EMPTY.to_owned(),
                "01" => "\"spec_wrong_path\"",
                "10" => "\"non_spec_correct_path\"",
                _ => "\"spec_correct_path\"",
            },
        );
        return line.text();
    }
    if !digits(from).contains('1') {
        return EMPTY.to_owned();
    }
    let mut line;
    match said.kind {
        "0" | "pm" => {
            line = Line::new(quoted(&field(from, 31, 0)), quoted(&field(from, 63, 32)));
        }
        "1" | "2" | "p6" | "netburst" => line = Line::new(whole(from), whole(to)),
        "3" => {
            line = Line::new(stretched(from, 63), whole(to));
            line.set("mispredicted", truth(from, 63));
        }
        "4" => {
            line = Line::new(stretched(from, 61), whole(to));
            line.set("mispredicted", truth(from, 63));
            if said.tsx {
                line.set("in_tx", truth(from, 62));
                line.set("abort", truth(from, 61));
            }
        }
        "5" | "7" => {
            line = Line::new(whole(from), whole(to));
            if let Some(info) = info {
                line.set("mispredicted", truth(info, 63));
                line.cycles(&field(info, 15, 0));
                if said.tsx {
                    line.set("in_tx", truth(info, 62));
                    line.set("abort", truth(info, 61));
                }
            }
        }
        "6" => {
            line = Line::new(stretched(from, 63), stretched(to, 48));
            line.set("mispredicted", truth(from, 63));
            line.cycles(&field(to, 63, 48));
        }
        "arch" => {
            line = Line::new(whole(from), whole(to));
            if let Some(info) = info {
                arch_info(&mut line, said, info);
            }
        }
        "amd_brs" => {
            if to == u64::MAX - 1 {
                return EMPTY.to_owned();
            }
            line = Line::new(whole(from), stretched(to, said.virt_bits));
        }
        "amd_single" => {
            line = Line::new(quoted(&field(from, 56, 0)), quoted(&field(to, 56, 0)));
        }
        other => panic!("no such kind: {other}"),
    }
    line.text()
}

fn arch_info(line: &mut Line, said: Said, info: u64) {
    let ecx = u64::from(said.ecx);
    if truth(ecx, 0) == "true" {
        line.set("mispredicted", truth(info, 63));
    }
    if said.tsx {
        line.set("in_tx", truth(info, 62));
        line.set("abort", truth(info, 61));
    }
    if truth(ecx, 1) == "true" && truth(info, 60) == "true" {
        line.cycles(&field(info, 15, 0));
    }
    if truth(ecx, 2) == "true" {
        let name = match field(info, 59, 56).as_str() {
            "0000" => "\"cond\"",
            "0001" => "\"ind_jmp\"",
            "0010" => "\"rel_jmp\"",
            "0011" => "\"ind_call\"",
            "0100" => "\"rel_call\"",
            "0101" => "\"ret\"",
            "0110" | "0111" => "null",
            _ => "\"other\"",
        };
        line.set("type", name);
    }
    if field(ecx, 19, 16).contains('1') {
        let counters: Vec<String> = (0..4)
            .map(|i| match truth(ecx, 16 + i) {
                "true" => number(&field(info, 33 + 2 * i, 32 + 2 * i)).to_string(),
                _ => "null".to_owned(),
            })
            .collect();
        line.set("counters", format!("[{}]", counters.join(",")));
    }
}

/// The JSON line of one BRBE record. Names by code, as Arm lists them.
pub(crate) fn brbe_line(inf: u64, src: u64, tgt: u64) -> String {
    let (from, to) = match field(inf, 1, 0).as_str() {
        "00" => return EMPTY.to_owned(),
        "01" => ("null".to_owned(), quoted(&digits(tgt))),
        "10" => (quoted(&digits(src)), "null".to_owned()),
        _ => (quoted(&digits(src)), quoted(&digits(tgt))),
    };
    let mut line = Line::new(from, to);
    line.set("mispredicted", truth(inf, 5));
    line.set("in_tx", truth(inf, 16));
    if truth(inf, 46) == "false" {
        let exponent = number(&field(inf, 45, 40)) as usize;
        let mantissa = field(inf, 39, 32);
        // A leading one before the mantissa, exponent − 1 zeros after it.
        let count = match exponent {
            0 => mantissa,
            e => format!("1{mantissa}{}", "0".repeat(e - 1)),
        };
        if count.len() <= 64 {
            line.set("cycles", number(&count).to_string());
            let top = number("11111111100000000000");
            line.set("cycles_saturated", if number(&count) >= top { "true" } else { "false" });
        }
    }
    let names = "00 direct_uncond 01 indirect 02 direct_link 03 indirect_link 05 ret 07 eret \
                 08 direct_cond 21 debug_halt 22 call 23 trap 24 serror 26 insn_debug \
                 27 data_debug 2a align_fault 2b insn_fault 2c data_fault 2e irq 2f fiq \
                 30 impdef_trap_el3 39 debug_exit";
    let code = format!("{:02x}", number(&field(inf, 13, 8)));
    let mut words = names.split_whitespace();
    while let (Some(known), Some(name)) = (words.next(), words.next()) {
        if known == code {
            line.set("type", format!("\"{name}\""));
        }
    }
    let text = line.text();
    let (el, failed) = (number(&field(inf, 7, 6)), truth(inf, 17));
    format!("{},\"el\":{el},\"last_failed\":{failed}}}", text.strip_suffix('}').unwrap())
}

/// Typical register values: user and kernel addresses with any flags, garbage in reserved bits,
/// zeros, extremes.
#[derive(Clone, Debug)]
pub(crate) struct Values(pub(crate) Random);

impl Values {
    /// The next value.
    pub(crate) fn value(&mut self) -> u64 {
        let (random, choice) = (self.0.next(), self.0.next());
        match choice % 16 {
            0..=3 => random,
            // A user address, a kernel address; then flags in the top bits.
            4 | 5 => random >> 17,
            6 | 7 => random | !0 << 47,
            8..=10 => (random >> 17) & !(7 << 61) | (choice >> 8 & 7) << 61,
            11..=13 => (random | !0 << 47) & !(7 << 61) | (choice >> 8 & 7) << 61,
            14 => 0,
            _ => [1, u64::MAX, u64::MAX - 1, 1 << 63, 0xFFFF, 0xFFFF << 48]
                [(choice >> 8) as usize % 6],
        }
    }
    /// The next INFO value; one of eight is missing.
    pub(crate) fn info(&mut self) -> Option<u64> {
        let choice = self.0.next();
        let value = self.value();
        match choice % 8 {
            0 => None,
            // Saturated cycles.
            1 => Some(value | 0xFFFF),
            _ => Some(value),
        }
    }
    /// The next BRBINF value, mostly with a valid type and exponent.
    pub(crate) fn brbinf(&mut self) -> u64 {
        let (value, choice) = (self.0.next(), self.0.next());
        match choice % 4 {
            0 => value,
            1 => value & !(0x3F << 40) | ((choice >> 8) % 13) << 40,
            2 => value & !(0x3F << 8 | 1 << 46) & !(0x38 << 40),
            _ => value & !(1 << 46) | 3,
        }
    }
}
