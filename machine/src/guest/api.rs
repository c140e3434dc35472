//! The part of QEMU's plugin interface, version 7 (QEMU 11), that the guest plugin uses. Declared
//! by hand: the interface is C, and no header is needed.
#![allow(unsafe_code, reason = "QEMU's plugin interface is C")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The interface version this plugin was written for. QEMU refuses to load it if its own differs
/// too much.
pub(super) const VERSION: c_int = 7;

/// The registers that a callback accesses: QEMU keeps them in memory accordingly.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) enum Registers {
    Untouched = 0,
    ReadWrite = 2,
    ReadWriteAndPc = 3,
}

/// `QEMU_PLUGIN_COND_NE`.
const NOT_EQUAL: c_int = 3;
/// `QEMU_PLUGIN_COND_GE`.
const AT_LEAST: c_int = 7;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
const ADD: c_int = 0;
/// `QEMU_PLUGIN_MEM_R`.
const MEMORY_READ: c_int = 1;
/// `QEMU_PLUGIN_DISCON_ALL`.
const EVERY_DISCONTINUITY: c_int = -1;
// The meaning of discontinuities in QEMU 11's x86 emulation, as observed with 11.1.3. The others,
// such as a call into the emulator, do not matter.
/// `QEMU_PLUGIN_DISCON_INTERRUPT`: an interrupt, or the previously raised exception, was delivered:
/// from the next instruction, or the faulting one, to the handler.
pub(super) const INTERRUPT: c_int = 1;
/// `QEMU_PLUGIN_DISCON_EXCEPTION`: an exception (or INT n) was raised and will be delivered next. The
/// guest's state is not up to date yet, so the addresses are meaningless.
pub(super) const EXCEPTION: c_int = 2;

/// Called when a vCPU executes something.
pub(super) type Executed = extern "C" fn(vcpu: c_uint, userdata: *mut c_void);
/// Called when a vCPU leaves the instruction sequence.
pub(super) type Diverted =
    extern "C" fn(vcpu: c_uint, kind: c_int, from: u64, to: u64, userdata: *mut c_void);
/// Called when a block was translated.
pub(super) type Translated = extern "C" fn(block: *mut c_void, userdata: *mut c_void);
/// Called when an instruction accesses memory.
pub(super) type Accessed =
    extern "C" fn(vcpu: c_uint, info: u32, address: u64, userdata: *mut c_void);
/// Called when a vCPU starts.
pub(super) type VcpuStarted = extern "C" fn(vcpu: c_uint, userdata: *mut c_void);
/// Called when QEMU exits.
pub(super) type Ended = extern "C" fn(userdata: *mut c_void);

/// `qemu_plugin_mem_value`.
#[repr(C)]
struct MemoryValue {
    kind: c_int,
    data: [u64; 2],
}

/// `qemu_plugin_u64`: a number per vCPU that generated code adds to and tests.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Number {
    scoreboard: *mut c_void,
    offset: usize,
}

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_init_cb(id: u64, callback: VcpuStarted, userdata: *mut c_void);
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: Translated, userdata: *mut c_void);
    fn qemu_plugin_register_vcpu_discon_cb(
        id: u64,
        kinds: c_int,
        callback: Diverted,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_atexit_cb(id: u64, callback: Ended, userdata: *mut c_void);
    fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        block: *mut c_void,
        callback: Executed,
        registers: Registers,
        condition: c_int,
        entry: Number,
        immediate: u64,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block: *mut c_void,
        operation: c_int,
        entry: Number,
        immediate: u64,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut c_void,
        callback: Executed,
        registers: Registers,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cond_cb(
        insn: *mut c_void,
        callback: Executed,
        registers: Registers,
        condition: c_int,
        entry: Number,
        immediate: u64,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut c_void,
        callback: Accessed,
        registers: Registers,
        accesses: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_mem_get_value(info: u32) -> MemoryValue;
    fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_vaddr(block: *const c_void) -> u64;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(insn: *const c_void) -> u64;
    fn qemu_plugin_insn_size(insn: *const c_void) -> usize;
    fn qemu_plugin_insn_data(insn: *const c_void, data: *mut c_void, len: usize) -> usize;
    fn qemu_plugin_set_pc(address: u64) -> !;
    fn qemu_plugin_scoreboard_new(element_size: usize) -> *mut c_void;
    fn qemu_plugin_u64_get(entry: Number, vcpu: c_uint) -> u64;
    fn qemu_plugin_u64_set(entry: Number, vcpu: c_uint, value: u64);
    fn qemu_plugin_outs(text: *const c_char);
}

/// Writes to QEMU's `-d plugin` log.
pub(super) fn log(text: &CStr) {
    // SAFETY: a zero-terminated string; QEMU copies it.
    unsafe { qemu_plugin_outs(text.as_ptr()) }
}

/// Registers the callbacks that last as long as the machine.
///
/// # Safety
/// `id` must be the one that QEMU passed to `qemu_plugin_install`.
pub(super) unsafe fn register(
    id: u64,
    started: VcpuStarted,
    translated: Translated,
    diverted: Diverted,
    ended: Ended,
) {
    let none = std::ptr::null_mut();
    // SAFETY: the caller guarantees the id; the callbacks have the types of version 7.
    unsafe {
        qemu_plugin_register_vcpu_init_cb(id, started, none);
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated, none);
        qemu_plugin_register_vcpu_discon_cb(id, EVERY_DISCONTINUITY, diverted, none);
        qemu_plugin_register_atexit_cb(id, ended, none);
    }
}

// SAFETY: the scoreboard lives as long as QEMU, which lets every vCPU's thread and the translator
// use it.
unsafe impl Send for Number {}
// SAFETY: as above.
unsafe impl Sync for Number {}

impl Number {
    /// `N` numbers, all 0.
    pub(super) fn several<const N: usize>() -> [Number; N] {
        // SAFETY: the only argument is the size of an element.
        let scoreboard = unsafe { qemu_plugin_scoreboard_new(N * size_of::<u64>()) };
        std::array::from_fn(|i| Number { scoreboard, offset: i * size_of::<u64>() })
    }

    pub(super) fn get(self, vcpu: c_uint) -> u64 {
        // SAFETY: QEMU created the scoreboard with space for it per vCPU.
        unsafe { qemu_plugin_u64_get(self, vcpu) }
    }

    pub(super) fn set(self, vcpu: c_uint, value: u64) {
        // SAFETY: as in `get`.
        unsafe { qemu_plugin_u64_set(self, vcpu, value) }
    }
}

/// A block in translation.
pub(super) struct Block(*mut c_void);

impl Block {
    /// # Safety
    /// `block` must be the argument of a running [`Translated`] callback.
    pub(super) unsafe fn new(block: *mut c_void) -> Block {
        Block(block)
    }

    pub(super) fn start(&self) -> u64 {
        // SAFETY: a block in translation, by `new`.
        unsafe { qemu_plugin_tb_vaddr(self.0) }
    }

    pub(super) fn instructions(&self) -> impl ExactSizeIterator<Item = BlockInsn<'_>> {
        // SAFETY: a block in translation, by `new`.
        let count = unsafe { qemu_plugin_tb_n_insns(self.0) };
        (0..count).map(|index| {
            // SAFETY: as above; the index is below the count.
            BlockInsn { insn: unsafe { qemu_plugin_tb_get_insn(self.0, index) }, _block: self }
        })
    }

    /// Calls `callback` each time the block starts on a vCPU whose number is at least `least`.
    pub(super) fn on_start<T: Sync>(
        &self,
        number: Number,
        least: u64,
        callback: Executed,
        data: &'static T,
    ) {
        // SAFETY: a block in translation, by `new`; `data` lives forever.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_cond_cb(
                self.0,
                callback,
                Registers::ReadWriteAndPc,
                AT_LEAST,
                number,
                least,
                userdata(data),
            );
        }
    }

    /// Adds to a vCPU's number each time the block starts, after the callbacks registered earlier.
    pub(super) fn add(&self, number: Number, addend: u32) {
        // SAFETY: a block in translation, by `new`.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(self.0, ADD, number, addend.into());
        }
    }
}

/// An instruction of a block in translation.
pub(super) struct BlockInsn<'a> {
    insn: *mut c_void,
    _block: &'a Block,
}

impl BlockInsn<'_> {
    pub(super) fn address(&self) -> u64 {
        // SAFETY: an instruction of a block in translation.
        unsafe { qemu_plugin_insn_vaddr(self.insn) }
    }

    /// Its bytes, and their count.
    pub(super) fn bytes(&self) -> ([u8; 16], usize) {
        let mut bytes = [0; 16];
        // SAFETY: QEMU writes at most as many bytes as it is given space for.
        let copied = unsafe {
            let size = qemu_plugin_insn_size(self.insn).min(bytes.len());
            qemu_plugin_insn_data(self.insn, bytes.as_mut_ptr().cast(), size)
        };
        (bytes, copied.min(bytes.len()))
    }

    /// Calls `callback` before each execution of the instruction.
    pub(super) fn before(&self, registers: Registers, callback: Executed, word: u64) {
        // SAFETY: an instruction of a block in translation; the word is passed through and never
        // dereferenced.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(
                self.insn,
                callback,
                registers,
                word as *mut c_void,
            );
        }
    }

    /// As [`before`](Self::before), with a value that lives forever; the callback may change all
    /// registers.
    pub(super) fn before_with<T: Sync>(&self, callback: Executed, data: &'static T) {
        self.before(Registers::ReadWriteAndPc, callback, userdata(data) as u64);
    }

    /// Calls `callback` before each execution of the instruction on a vCPU whose number is not 0.
    pub(super) fn before_if<T: Sync>(&self, number: Number, callback: Executed, data: &'static T) {
        // SAFETY: an instruction of a block in translation; `data` lives forever.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cond_cb(
                self.insn,
                callback,
                Registers::Untouched,
                NOT_EQUAL,
                number,
                0,
                userdata(data),
            );
        }
    }

    /// Calls `callback` for each memory read of the instruction.
    pub(super) fn on_read(&self, callback: Accessed) {
        // SAFETY: an instruction of a block in translation.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(
                self.insn,
                callback,
                Registers::Untouched,
                MEMORY_READ,
                std::ptr::null_mut(),
            );
        }
    }
}

fn userdata<T: Sync>(data: &'static T) -> *mut c_void {
    std::ptr::from_ref(data).cast_mut().cast()
}

/// The data given to [`Block::on_start`], [`BlockInsn::before_with`] or [`BlockInsn::before_if`].
///
/// # Safety
/// `userdata` must be the argument of a callback that was registered with data of this type.
pub(super) unsafe fn data<T: Sync>(userdata: *mut c_void) -> &'static T {
    // SAFETY: the pointer was made from a `&'static T` by `userdata`.
    unsafe { &*userdata.cast_const().cast() }
}

/// The 8 bytes that an instruction has read; `None` for another size.
pub(super) fn value_of_8_bytes(info: u32) -> Option<u64> {
    // SAFETY: the handle is that of the reported access; the union's first 8 bytes are valid for a
    // 64-bit value.
    unsafe {
        (qemu_plugin_mem_size_shift(info) == 3).then(|| qemu_plugin_mem_get_value(info).data[0])
    }
}

/// Continues at `address`. Jumps over the callback's frames, so nothing may be left to drop, and no
/// lock may be held.
///
/// # Safety
/// Only in a callback registered with [`Registers::ReadWriteAndPc`].
pub(super) unsafe fn continue_at(address: u64) -> ! {
    // SAFETY: the caller guarantees it.
    unsafe { qemu_plugin_set_pc(address) }
}
