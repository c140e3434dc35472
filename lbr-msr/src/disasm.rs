//! Instructions as text, x86 in Intel or AT&T syntax, formatted like binutils' `objdump`.

use alloc::format;
use alloc::string::{String, ToString};

use iced_x86::{
    Code, Decoder, DecoderOptions, Formatter, GasFormatter, IntelFormatter, MemorySizeOptions,
};
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction as ArmInstruction, Opcode, Operand};

use crate::insn::{Insn, Isa};

/// Assembly syntax of x86.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    /// Destination first: `mov edi,DWORD PTR [rbx]`.
    #[default]
    Intel,
    /// Source first: `mov (%rbx),%edi`.
    Att,
}

/// A disassembled instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Length in bytes, 1 to 15.
    pub len: u8,
    /// Mnemonic with its prefixes: `rep stosb`.
    pub mnemonic: String,
    /// Operands separated by commas; empty if there are none.
    pub operands: String,
    /// The address of the data that an operand relative to the instruction refers to.
    pub rip_relative: Option<u64>,
}

/// Writes instructions in one syntax.
pub struct Disassembler {
    style: Style,
}

enum Style {
    Intel(IntelFormatter),
    Att(GasFormatter),
    Aarch64,
}

impl core::fmt::Debug for Disassembler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Disassembler").finish_non_exhaustive()
    }
}

impl Disassembler {
    /// A disassembler for this syntax.
    pub fn new(syntax: Syntax) -> Disassembler {
        let mut style = match syntax {
            Syntax::Intel => Style::Intel(IntelFormatter::new()),
            Syntax::Att => Style::Att(GasFormatter::new()),
        };
        let Some(formatter) = style.x86() else { return Disassembler { style } };
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_show_branch_size(false);
        options.set_rip_relative_addresses(true);
        options.set_uppercase_keywords(true);
        options.set_memory_size_options(MemorySizeOptions::Always);
        Disassembler { style }
    }

    /// A disassembler for an instruction set, where `syntax` is about x86 alone.
    pub fn of(isa: Isa, syntax: Syntax) -> Disassembler {
        match isa {
            Isa::X86_64 => Disassembler::new(syntax),
            Isa::Aarch64 => Disassembler { style: Style::Aarch64 },
        }
    }

    /// The instruction at `ip` (15 bytes are always enough); `None` if the bytes are invalid or too
    /// few.
    pub fn text(&mut self, bytes: &[u8], ip: u64) -> Option<Text> {
        let Some(formatter) = self.style.x86() else { return aarch64(bytes, ip) };
        let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
        if insn.code() == Code::INVALID {
            return None;
        }
        let (mut mnemonic, mut operands) = (String::new(), String::new());
        formatter.format_mnemonic(&insn, &mut mnemonic);
        formatter.format_all_operands(&insn, &mut operands);
        let rip_relative = insn.is_ip_rel_memory_operand().then(|| insn.ip_rel_memory_address());
        Some(Text { len: insn.len() as u8, mnemonic, operands, rip_relative })
    }
}

impl Style {
    fn x86(&mut self) -> Option<&mut dyn Formatter> {
        match self {
            Style::Intel(formatter) => Some(formatter),
            Style::Att(formatter) => Some(formatter),
            Style::Aarch64 => None,
        }
    }
}

/// An instruction that the crate does not know (such as SVE's) is printed as `.inst`, like
/// objdump does.
fn aarch64(bytes: &[u8], ip: u64) -> Option<Text> {
    let (len, target) = match Isa::Aarch64.decode(bytes, ip) {
        Insn::Straight { len } => (len, None),
        Insn::Branch(branch) => (branch.len, branch.target),
        Insn::Invalid => return None,
    };
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let mut insn = ArmInstruction::default();
    let known = InstDecoder::default().decode_into(&mut insn, &mut U8Reader::new(bytes)).is_ok();
    let text = if known { insn.to_string() } else { format!(".inst {word:#010x}") };
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((&text, ""));
    // The crate prints distances, objdump addresses.
    let page = if insn.opcode == Opcode::ADRP { !0xFFF } else { !0 };
    let data = insn.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(distance) if known && target.is_none() => {
            Some((ip & page).wrapping_add_signed(*distance))
        }
        _ => None,
    });
    let operands = match (target.or(data), operands.split_once('$')) {
        (Some(address), Some((before, _))) => format!("{before}{address:#x}"),
        _ => operands.to_string(),
    };
    let rip_relative = data.filter(|_| page == !0);
    Some(Text { len, mnemonic: mnemonic.to_string(), operands, rip_relative })
}
