//! The part of QEMU's plugin interface, version 1, as exported by QEMU 7.2, that this plugin uses.
//! QEMU binds the functions when it loads the plugin.
#![allow(unsafe_code, reason = "declarations of C functions")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// The only supported interface version.
pub(super) const VERSION: c_int = 1;
/// A callback that accesses no guest register.
pub(super) const NO_REGS: c_int = 0;

/// `QEMU_PLUGIN_INLINE_ADD_U64`.
pub(super) const INLINE_ADD_U64: c_int = 0;

/// `qemu_plugin_id_t`.
pub(super) type Id = u64;
/// `struct qemu_plugin_tb`: a block in translation.
pub(super) type Tb = c_void;
/// `struct qemu_plugin_insn`: an instruction in translation.
pub(super) type Insn = c_void;

/// `qemu_plugin_vcpu_simple_cb_t`.
pub(super) type VcpuCallback = extern "C" fn(Id, c_uint);
/// `qemu_plugin_vcpu_udata_cb_t`.
pub(super) type ExecCallback = extern "C" fn(c_uint, *mut c_void);
/// `qemu_plugin_vcpu_tb_trans_cb_t`.
pub(super) type TranslateCallback = extern "C" fn(Id, *mut Tb);
/// `qemu_plugin_vcpu_syscall_cb_t`: number and eight arguments.
pub(super) type SyscallCallback =
    extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// `qemu_plugin_vcpu_syscall_ret_cb_t`: number and result.
pub(super) type SyscallReturnCallback = extern "C" fn(Id, c_uint, i64, i64);

unsafe extern "C" {
    pub(super) fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: VcpuCallback);
    pub(super) fn qemu_plugin_register_vcpu_exit_cb(id: Id, callback: VcpuCallback);
    pub(super) fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: TranslateCallback);
    pub(super) fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        callback: ExecCallback,
        flags: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        callback: ExecCallback,
        flags: c_int,
        userdata: *mut c_void,
    );
    /// Adds `imm` to the word at `ptr` before the instruction, on any thread, without a lock.
    pub(super) fn qemu_plugin_register_vcpu_insn_exec_inline(
        insn: *mut Insn,
        op: c_int,
        ptr: *mut c_void,
        imm: u64,
    );
    pub(super) fn qemu_plugin_register_vcpu_syscall_cb(id: Id, callback: SyscallCallback);
    pub(super) fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, callback: SyscallReturnCallback);
    pub(super) fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub(super) fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    pub(super) fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    pub(super) fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub(super) fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    /// Points to `qemu_plugin_insn_size` bytes.
    pub(super) fn qemu_plugin_insn_data(insn: *const Insn) -> *const c_void;
    /// The load address of the program's code; 0 before loading.
    pub(super) fn qemu_plugin_start_code() -> u64;
}

/// Calls `callback`, without data, before each execution of an instruction.
///
/// # Safety
/// Only for an instruction in translation.
pub(super) unsafe fn before(insn: *mut Insn, callback: ExecCallback) {
    // SAFETY: guaranteed by the caller.
    unsafe { qemu_plugin_register_vcpu_insn_exec_cb(insn, callback, NO_REGS, null_mut()) }
}

/// The arguments after the plugin's path, as passed to `qemu_plugin_install`.
pub(super) type Arguments = *const *const c_char;
