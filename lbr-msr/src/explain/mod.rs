//! The meaning of each bit of each register, as data.
//!
//! [`find`] looks a register up by its name in a manual or by its address. If that differs between
//! CPUs, the given CPU decides; without one, the layout of current CPUs applies and
//! [`Register::variant`] names it.
//!
//! The fields of a register cover all 64 bits, each once: undocumented bits form fields called
//! `reserved`.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use crate::{
    Msr, address,
    caps::FilterRegister,
    register::{Field, LbrSelect},
};

mod build;
mod catalogue;
mod cpu;
mod find;
mod near;
mod sources;

pub use build::BuildError;
use catalogue::{ENTRIES, Entry, Location, Variant};
pub use cpu::{BadCpuKey, CpuKey};
pub use find::{FindError, find};
pub use sources::SOURCES;

/// A register of one CPU, or of current CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    entry: &'static Entry,
    on: &'static Variant,
    index: Option<u32>,
    chosen: bool,
}

impl Register {
    /// The manual's name.
    pub fn name(&self) -> String {
        match self.index {
            Some(index) => self.entry.name.replace("{n}", &index.to_string()),
            None => self.entry.name.to_string(),
        }
    }

    /// The name with `n` for an index.
    pub fn template(&self) -> String {
        self.entry.name.replace("{n}", "n")
    }

    /// Number of such registers, one per record; `None` without an index.
    pub fn count(&self) -> Option<u32> {
        self.on.count()
    }

    /// The register with the highest index; itself without an index.
    #[must_use]
    pub fn last(self) -> Register {
        Register { index: self.on.count().map(|count| count.saturating_sub(1)), ..self }
    }

    /// Its address; `None` for an Arm system register.
    pub fn msr(&self) -> Option<Msr> {
        let is_msr = matches!(self.on.location, Location::At(_) | Location::Each { .. });
        is_msr.then(|| self.address())
    }

    /// Its address in a register file: that of the MSR, or of an Arm system register as in
    /// [`address::brbe`].
    pub fn address(&self) -> Msr {
        match self.on.location {
            Location::At(msr) => msr,
            Location::Each { first, stride, .. } => {
                Msr(first.0.wrapping_add(stride.wrapping_mul(self.index.unwrap_or(0))))
            }
            Location::System(register) => register,
            Location::SystemEach { first, .. } => {
                Msr(first.0 + address::brbe::distance(self.index.unwrap_or(0)))
            }
        }
    }

    /// An Arm system register in assembler form, `S<op0>_<op1>_C<CRn>_C<CRm>_<op2>`; `None` for an
    /// MSR. BRBE; op2 of the per-record registers comes from one source only.
    pub fn encoding(&self) -> Option<String> {
        let Msr(at) = self.address();
        let [op1, op2] = [at >> 11 & 7, at & 7];
        let [crn, crm] = [at >> 7 & 0xF, at >> 3 & 0xF];
        self.msr().is_none().then(|| format!("S2_{op1}_C{crn}_C{crm}_{op2}"))
    }

    /// Its purpose, in one sentence.
    pub fn summary(&self) -> &'static str {
        self.entry.summary
    }

    /// The manual and section that describe it.
    pub fn source(&self) -> &'static str {
        self.entry.source
    }

    /// The CPUs that this meaning applies to.
    pub fn variant(&self) -> &'static str {
        self.on.cpus
    }

    /// Whether the name, the address or the CPU determines the variant; otherwise the one for
    /// current CPUs was assumed.
    pub fn is_certain(&self) -> bool {
        self.chosen
    }

    /// If the register is a branch filter: the kind of filter, for conversions by
    /// [`filter`](crate::filter).
    pub fn filter(&self) -> Option<FilterRegister> {
        match self.msr()? {
            address::MSR_LBR_SELECT => Some(FilterRegister::LbrSelect {
                jumps_swallow_calls: self.on.on.contains(&"NHM"),
                call_stack: self.on.lacks & LbrSelect::EN_CALLSTACK.bits() == 0,
            }),
            address::IA32_LBR_CTL => {
                Some(FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: true })
            }
            address::AMD_LBR_SELECT => Some(FilterRegister::AmdSelect),
            _ => None,
        }
    }

    /// All fields from bit 0 up, including reserved ones; every bit belongs to exactly one.
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut next = 0;
        for field in self.described() {
            if field.low > next {
                fields.push(Field::reserved(field.low - 1, next, self.entry.source));
            }
            fields.push(*field);
            next = field.high + 1;
        }
        if next < 64 {
            fields.push(Field::reserved(63, next, self.entry.source));
        }
        fields
    }

    /// The documented fields.
    fn described(&self) -> impl Iterator<Item = &'static Field> {
        self.on.fields.iter().filter(|field| field.mask() & self.on.lacks == 0)
    }
}

/// All registers of all CPUs, for tests and lists; indexed ones once, with index 0.
pub fn all() -> impl Iterator<Item = Register> {
    let index = |on: &Variant| on.count().map(|_| 0);
    find::everywhere().map(move |(entry, on)| Register {
        entry,
        on,
        index: index(on),
        chosen: true,
    })
}

/// All registers of a CPU, indexed ones once, with index 0.
///
/// # Errors
/// [`FindError::UnknownCpu`].
pub fn all_of(cpu: CpuKey) -> Result<impl Iterator<Item = Register>, FindError> {
    let generation = cpu.generation().ok_or(FindError::UnknownCpu { cpu })?;
    Ok(all().filter(move |register| register.on.on.contains(&generation)))
}
