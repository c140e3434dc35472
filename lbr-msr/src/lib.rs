//! Branch-record registers: their layout, and access to them.
//!
//! A CPU that records branches writes, for every taken branch, its source and target address and
//! (depending on the format) whether it was mispredicted and how many core cycles passed since the
//! previous record. This crate holds the [addresses](address), [fields](register) and
//! [formats](mod@format) of those registers, the CPU [table] and the [filters](filter); reads and
//! writes them through [access] backends; and contains a [software LBR](soft) that behaves like the
//! registers of a chosen CPU.
//!
//! The crate never prints.
//!
//! ```
//! use lbr_msr::RawEntry;
//! use lbr_msr::decode::decode;
//! use lbr_msr::soft::SoftCpu;
//!
//! // A record of Skylake: FROM, TO and INFO, with bit 63 of INFO set and 25 cycles.
//! let skylake = SoftCpu::preset("skylake")?;
//! let raw = RawEntry { from: 0x401136, to: 0x401160, info: Some(1 << 63 | 25) };
//! let branch = decode(skylake.caps.layout, &raw).expect("a slot that holds a record");
//! assert_eq!((branch.from, branch.to), (0x401136, 0x401160));
//! assert_eq!((branch.mispredicted, branch.cycles), (Some(true), Some(25)));
//! # Ok::<(), lbr_msr::soft::preset::UnknownCpu>(())
//! ```
//!
//! # Sources
//!
//! Citations on items use these tags:
//!
//! | tag | document |
//! |---|---|
//! | SDM | Intel 64 and IA-32 Architectures Software Developer's Manual, Vol. 3, late 2016 edition (section and table numbers of that edition) |
//! | SDM24 | the same, Vol. 3B, October 2024: Architectural LBR tables |
//! | SDM09 | the same, December 2009 |
//! | APM | AMD64 Architecture Programmer's Manual Vol. 2 and the register descriptions Linux was written from |
//! | Linux | `arch/x86/events/intel/lbr.c`, `amd/lbr.c`, `amd/brs.c`, `arch/x86/include/asm/msr-index.h`, `asm/perf_event.h`, `arch/x86/kernel/msr.c`, about v6.13 |
//! | EDK2 | TianoCore EDK II, `MdePkg/Include/Register/Intel` (generated from the SDM's MSR tables) |
//! | Xen | `xen/arch/x86/hvm/vmx/vmx.c` |
//! | BRBE | `drivers/perf/arm_brbe.c` and `arch/arm64/tools/sysreg` of Linux |
//! | msr-safe | LLNL msr-safe 1.8.0 |
//!
//! # `no_std`
//!
//! Without the feature `std` this crate needs only `alloc`: decoding, the table, filters, probing
//! through a given CPUID reader, the software LBR and the access traits all work in a kernel or in
//! firmware.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod access;
pub mod address;
pub mod arm;
pub mod caps;
pub mod decode;
#[cfg(feature = "disasm")]
pub mod disasm;
#[cfg(all(feature = "std", target_os = "linux"))]
pub mod environment;
pub mod explain;
pub mod filter;
pub mod format;
#[cfg(feature = "insn")]
pub mod insn;
pub mod probe;
pub mod record;
pub mod register;
pub mod snapshot;
pub mod soft;
pub mod table;
pub mod text;

pub use access::{MsrError, MsrRead, MsrWrite};
pub use address::Msr;
pub use caps::{Facility, LbrCaps};
pub use filter::BranchFilter;
pub use format::LbrFormat;
pub use record::{BranchEntry, BranchStack, RawEntry};
