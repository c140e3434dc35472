//! Instructions as text in Intel or AT&T syntax, formatted like binutils' `objdump`.

use alloc::string::String;

use iced_x86::{
    Code, Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, IntelFormatter,
    MemorySizeOptions,
};

/// Assembly syntax.
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
    /// The address that a RIP-relative operand refers to.
    pub rip_relative: Option<u64>,
}

/// Writes instructions in one syntax.
pub struct Disassembler {
    formatter: Style,
}

enum Style {
    Intel(IntelFormatter),
    Att(GasFormatter),
}

impl core::fmt::Debug for Disassembler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Disassembler").finish_non_exhaustive()
    }
}

impl Disassembler {
    /// A disassembler for this syntax.
    pub fn new(syntax: Syntax) -> Disassembler {
        let mut formatter = match syntax {
            Syntax::Intel => Style::Intel(IntelFormatter::new()),
            Syntax::Att => Style::Att(GasFormatter::new()),
        };
        let options = formatter.get().options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_displacement_leading_zeros(false);
        options.set_leading_zeros(false);
        options.set_show_branch_size(false);
        options.set_rip_relative_addresses(true);
        options.set_signed_immediate_operands(false);
        options.set_uppercase_keywords(true);
        options.set_memory_size_options(MemorySizeOptions::Always);
        Disassembler { formatter }
    }

    /// The instruction at `ip` in 64-bit code (15 bytes are always enough); `None` if the bytes are
    /// invalid or too few.
    pub fn text(&mut self, bytes: &[u8], ip: u64) -> Option<Text> {
        let mut insn = Instruction::default();
        Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode_out(&mut insn);
        if insn.code() == Code::INVALID {
            return None;
        }
        let (mut mnemonic, mut operands) = (String::new(), String::new());
        let formatter = self.formatter.get();
        formatter.format_mnemonic(&insn, &mut mnemonic);
        formatter.format_all_operands(&insn, &mut operands);
        let rip_relative = insn.is_ip_rel_memory_operand().then(|| insn.ip_rel_memory_address());
        Some(Text { len: insn.len() as u8, mnemonic, operands, rip_relative })
    }
}

impl Style {
    fn get(&mut self) -> &mut dyn Formatter {
        match self {
            Style::Intel(formatter) => formatter,
            Style::Att(formatter) => formatter,
        }
    }
}
