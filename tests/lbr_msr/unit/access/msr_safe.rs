//! The module's rules in memory, written from msr_batch.c and msr_entry.c, and the backend's
//! handling of its answers.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use std::{fs, os::unix::fs::FileExt, sync::Mutex};

use nix::errno::Errno;

use super::{
    MsrSafe,
    abi::{Batch, BatchOp},
    not_opened, packed_version,
};
use crate::access::{Access, MsrError, MsrRead, MsrWrite, Op, Root};
use crate::address::Msr;
use crate::arm::Need;

/// A CPU as the module sees it.
#[derive(Debug, Default)]
struct Module {
    registers: BTreeMap<u32, u64>,
    masks: BTreeMap<u32, u64>,
    online: u16,
    calls: Vec<u32>,
}

#[derive(Debug)]
struct StandIn(Arc<Mutex<Module>>);

impl Batch for StandIn {
    fn run(&mut self, version: u32, ops: &mut [BatchOp]) -> Result<(), Errno> {
        let mut module = self.0.lock().unwrap();
        module.calls.push(version);
        if ops.is_empty() {
            return Err(Errno::EINVAL);
        }
        // First the list and the CPU are checked for all steps.
        let mut refused = None;
        for op in &mut *ops {
            let mask = module.masks.get(&op.msr).copied();
            op.write_mask = mask.unwrap_or(0);
            let errno = match mask {
                _ if op.cpu >= module.online => Some(Errno::ENXIO),
                None => Some(Errno::EACCES),
                Some(0) if op.is_read == 0 => Some(Errno::EROFS),
                Some(_) => None,
            };
            op.err = errno.map_or(0, |errno| -(errno as i32));
            refused = refused.or(errno);
        }
        if let Some(errno) = refused {
            return Err(errno);
        }
        let mut first = None;
        for op in ops {
            // Writes read the register first, too.
            let Some(held) = module.registers.get_mut(&op.msr) else {
                op.err = -(Errno::EIO as i32);
                first = first.or(Some(Errno::EIO));
                continue;
            };
            if op.is_read != 0 {
                op.data = *held;
            } else {
                *held = op.data & op.write_mask | *held & !op.write_mask;
            }
        }
        first.map_or(Ok(()), Err)
    }
}

const SELECT: Msr = Msr(0x1C8);
const TOS: Msr = Msr(0x1C9);
const DEBUGCTL: Msr = Msr(0x1D9);
const FROM: Msr = Msr(0x680);
const ABSENT: Msr = Msr(0x6FF);

/// CPU 0: DEBUGCTL with bits 0 and 1, of which only bit 0 is writable; TOS and FROM 0; 0x6FF is
/// listed but does not exist; SELECT is not listed.
fn opened() -> (MsrSafe, Arc<Mutex<Module>>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let cpu = dir.path().join("dev/cpu");
    fs::create_dir_all(cpu.join("0")).unwrap();
    fs::write(cpu.join("0/msr_safe"), []).unwrap();
    fs::write(cpu.join("msr_batch"), []).unwrap();
    fs::write(cpu.join("msr_safe_version"), "1.8.0\n").unwrap();
    fs::write(
        cpu.join("msr_allowlist"),
        "# MSR # Write Mask\n0x000001D9 0x0000000000000001 # IA32_DEBUGCTL\n0x1c9 0x0\n\
         0x680 0xFFFFFFFFFFFFFFFF\n0x6FF 0xFFFFFFFFFFFFFFFF\nnonsense\n",
    )
    .unwrap();
    let module = Arc::new(Mutex::new(Module {
        registers: [(0x1D9, 3), (0x1C9, 5), (0x680, 0x1111)].into(),
        masks: [(0x1D9, 1), (0x1C9, 0), (0x680, u64::MAX), (0x6FF, u64::MAX)].into(),
        online: 1,
        calls: Vec::new(),
    }));
    let mut safe = MsrSafe::open(0, &Root::at(dir.path()), true).unwrap();
    safe.batch = Box::new(StandIn(Arc::clone(&module)));
    (safe, module, dir)
}

fn read(msr: Msr) -> Op {
    Op::Read { msr, value: 0xDEAD }
}

#[test]
fn a_batch_is_one_call_in_order() {
    let (mut safe, module, _dir) = opened();
    assert!(safe.one_call());
    let mut batch = [
        Op::Write { msr: DEBUGCTL, value: 0 },
        read(DEBUGCTL),
        read(TOS),
        read(FROM),
        Op::Write { msr: FROM, value: 0 },
        read(FROM),
        Op::Write { msr: DEBUGCTL, value: 1 },
    ];
    safe.run(&mut batch).unwrap();
    // Bit 1 is not in the mask and keeps its value.
    assert_eq!(batch[1], Op::Read { msr: DEBUGCTL, value: 2 });
    assert_eq!(batch[2], Op::Read { msr: TOS, value: 5 });
    assert_eq!(batch[3], Op::Read { msr: FROM, value: 0x1111 });
    assert_eq!(batch[5], Op::Read { msr: FROM, value: 0 });
    let module = module.lock().unwrap();
    assert_eq!(module.registers, [(0x1D9, 3), (0x1C9, 5), (0x680, 0)].into());
    // 1.8.0
    assert_eq!(module.calls, [0x01_08_00]);
}

#[test]
fn an_empty_batch_is_no_call() {
    let (mut safe, module, _dir) = opened();
    safe.run(&mut [read(TOS), read(FROM)]).unwrap();
    safe.run(&mut []).unwrap();
    assert_eq!(module.lock().unwrap().calls.len(), 1);
}

#[test]
fn nothing_runs_when_one_step_is_not_allowed() {
    for (step, msr, access) in [
        (read(SELECT), SELECT, Access::Read),
        (Op::Write { msr: SELECT, value: 1 }, SELECT, Access::Write),
        (Op::Write { msr: TOS, value: 1 }, TOS, Access::Write),
    ] {
        let (mut safe, module, _dir) = opened();
        let before = module.lock().unwrap().registers.clone();
        let mut batch = [Op::Write { msr: FROM, value: 0 }, read(FROM), step];
        let error = safe.run(&mut batch).unwrap_err();
        let MsrError::NotListed { msr: named, access: how, line, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*named, *how), (msr, access));
        // The bits that may be written.
        let bits = if access == Access::Write { u64::MAX } else { 0 };
        assert_eq!(*line, format!("{:#010x} {bits:#018x}", msr.0));
        assert_eq!(module.lock().unwrap().registers, before);
        assert_eq!(batch[1], read(FROM), "what did not run keeps its value");
    }
}

#[test]
fn a_fault_stops_only_its_own_step() {
    let (mut safe, module, _dir) = opened();
    let mut batch = [read(TOS), Op::Write { msr: ABSENT, value: 1 }, read(ABSENT), read(FROM)];
    let fault = MsrError::Fault { cpu: 0, msr: ABSENT, access: Access::Write };
    assert_eq!(safe.run(&mut batch), Err(fault));
    assert_eq!(batch[0], Op::Read { msr: TOS, value: 5 });
    assert_eq!(batch[2], read(ABSENT));
    assert_eq!(batch[3], Op::Read { msr: FROM, value: 0x1111 });

    module.lock().unwrap().online = 0;
    let error = safe.run(&mut [read(TOS)]).unwrap_err();
    assert_eq!(error, MsrError::Offline { cpu: 0 });
}

#[test]
fn the_error_is_named_where_the_module_leaves_the_steps_untouched() {
    /// Refuses, and copies nothing back.
    #[derive(Debug)]
    struct Silent;
    impl Batch for Silent {
        fn run(&mut self, _: u32, _: &mut [BatchOp]) -> Result<(), Errno> {
            Err(Errno::EACCES)
        }
    }
    let (mut safe, _, _dir) = opened();
    safe.batch = Box::new(Silent);
    let error = safe.run(&mut [read(FROM), read(SELECT)]).unwrap_err();
    let line = "0x000001c8 0x0000000000000000".into();
    assert_eq!(error, MsrError::NotListed { msr: SELECT, access: Access::Read, line });
    // TOS may be read only.
    let error = safe.run(&mut [read(TOS), Op::Write { msr: TOS, value: 1 }]).unwrap_err();
    let line = "0x000001c9 0xffffffffffffffff".into();
    assert_eq!(error, MsrError::NotListed { msr: TOS, access: Access::Write, line });
}

/// msr_read and msr_write of msr_entry.c.
#[test]
fn an_error_of_an_access_has_its_reason() {
    let (safe, _, _dir) = opened();
    for access in [Access::Read, Access::Write] {
        let of = |errno| safe.error(TOS, access, errno);
        assert_eq!(of(Errno::EIO), MsrError::Fault { cpu: 0, msr: TOS, access });
        assert_eq!(of(Errno::ENXIO), MsrError::Offline { cpu: 0 });
        for errno in [Errno::EACCES, Errno::EROFS] {
            assert!(matches!(of(errno), MsrError::NotListed { msr: TOS, .. }), "{errno}");
        }
        assert!(matches!(of(Errno::EINVAL), MsrError::Os { msr: TOS, .. }));
    }
}

/// File modes decide, no capability: EPERM does not mean a missing one.
#[test]
fn an_error_of_opening_has_its_reason() {
    let (_safe, _, dir) = opened();
    let (root, node) = (Root::at(dir.path()), dir.path().join("dev/cpu/0/msr_safe"));
    let of = |errno: Errno| not_opened(0, &root, &node, &errno.into());
    let MsrError::Open { path, cause } = of(Errno::EPERM) else { panic!("EPERM") };
    assert!(path.ends_with("dev/cpu/0/msr_safe"), "{path}");
    assert!(cause.starts_with("Operation not permitted"), "{cause}");
    assert!(matches!(of(Errno::EACCES), MsrError::Permission { .. }));
    assert_eq!(of(Errno::ENXIO), MsrError::Offline { cpu: 0 });
}

#[test]
fn a_second_writer_is_refused_until_the_first_ends() {
    let (first, _, dir) = opened();
    let open = |write| MsrSafe::open(0, &Root::at(dir.path()), write);
    assert_eq!(open(true).unwrap_err(), MsrError::InUse { cpu: 0 });
    assert!(open(false).is_ok(), "reading disturbs nobody");
    drop(first);
    assert!(open(true).is_ok());
}

/// The module's version is unknown before 1.6, and its list may be unreadable.
#[test]
fn without_the_files_the_module_decides() {
    let (safe, module, dir) = opened();
    drop(safe);
    for file in ["msr_safe_version", "msr_allowlist"] {
        fs::remove_file(dir.path().join("dev/cpu").join(file)).unwrap();
    }
    let mut safe = MsrSafe::open(0, &Root::at(dir.path()), true).unwrap();
    safe.batch = Box::new(StandIn(Arc::clone(&module)));
    assert_eq!(safe.check(&[Need { msr: SELECT, write_mask: u64::MAX }]), Ok(()));
    safe.run(&mut [read(TOS)]).unwrap();
    assert_eq!(module.lock().unwrap().calls, [0]);
}

#[test]
fn missing_allowlist_lines_are_named() {
    let (safe, _, _dir) = opened();
    let need = |msr, write_mask| Need { msr, write_mask };
    assert_eq!(safe.check(&[need(TOS, 0), need(FROM, u64::MAX), need(DEBUGCTL, 1)]), Ok(()));
    let needs = [need(TOS, 0), need(DEBUGCTL, 0x800), need(SELECT, 0x3FF)];
    let error = safe.check(&needs).unwrap_err();
    let line = "\n0x000001d9 0x0000000000000801\n0x000001c8 0x00000000000003ff".into();
    assert_eq!(error, MsrError::NotListed { msr: DEBUGCTL, access: Access::Write, line });
    let error = safe.check(&[need(SELECT, 0x3FF)]).unwrap_err();
    let line = "\n0x000001c8 0x00000000000003ff".into();
    assert_eq!(error, MsrError::NotListed { msr: SELECT, access: Access::Read, line });
}

#[test]
fn single_accesses_are_eight_bytes_at_the_address() {
    let (mut safe, module, dir) = opened();
    let node = fs::File::options().write(true).open(dir.path().join("dev/cpu/0/msr_safe")).unwrap();
    node.write_all_at(&0x0123_4567_89AB_CDEFu64.to_le_bytes(), 0x1D9).unwrap();
    assert_eq!(safe.read(DEBUGCTL), Ok(0x0123_4567_89AB_CDEF));
    safe.write(DEBUGCTL, 0x77).unwrap();
    assert_eq!(safe.read(DEBUGCTL), Ok(0x77));
    // The node ends after four bytes.
    let error = safe.read(Msr(0x1D9 + 4)).unwrap_err();
    assert!(matches!(&error, MsrError::Os { cause, .. } if cause.contains("4 bytes")), "{error}");
    assert!(module.lock().unwrap().calls.is_empty());
}

#[test]
fn an_unloaded_module_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("dev/cpu/0")).unwrap();
    let error = MsrSafe::open(0, &Root::at(dir.path()), false).unwrap_err();
    assert!(error.to_string().ends_with("run: modprobe msr-safe"), "{error}");
    let error = MsrSafe::open(4, &Root::at(dir.path()), false).unwrap_err();
    assert!(matches!(error, MsrError::NoSuchCpu { cpu: 4, .. }), "{error}");
}

#[test]
fn versions_are_packed() {
    let packed = [
        ("1.8.0\n", 0x01_08_00),
        ("2.0.1-rc1", 0x02_00_01),
        ("3", 0x03_00_00),
        ("v1.255.7", 0x01_FF_07),
    ];
    for (text, version) in packed {
        assert_eq!(packed_version(text), Some(version));
    }
    // Eight bits each.
    assert_eq!(["", "x.y", "256.0.0"].map(packed_version), [None; 3]);
}
