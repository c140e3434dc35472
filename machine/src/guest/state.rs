//! Registers and memory of a virtual CPU, through QEMU's plugin interface.
#![allow(unsafe_code, reason = "QEMU's plugin interface is C")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// GLib's `GByteArray`.
#[repr(C)]
struct ByteArray {
    data: *mut u8,
    len: c_uint,
}

/// GLib's `GArray`.
#[repr(C)]
struct Array {
    data: *mut c_void,
    len: c_uint,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
struct RegisterDescriptor {
    handle: *mut c_void,
    name: *const c_char,
    feature: *const c_char,
    read_only: bool,
}

unsafe extern "C" {
    fn qemu_plugin_read_memory_vaddr(address: u64, data: *mut ByteArray, len: usize) -> bool;
    fn qemu_plugin_write_memory_vaddr(address: u64, data: *mut ByteArray) -> bool;
    fn qemu_plugin_read_memory_hwaddr(address: u64, data: *mut ByteArray, len: usize) -> c_int;
    fn qemu_plugin_write_memory_hwaddr(address: u64, data: *mut ByteArray) -> c_int;
    fn qemu_plugin_get_registers() -> *mut Array;
    fn qemu_plugin_read_register(handle: *mut c_void, data: *mut ByteArray) -> bool;
    fn qemu_plugin_write_register(handle: *mut c_void, data: *mut ByteArray) -> bool;
    fn g_byte_array_new() -> *mut ByteArray;
    fn g_byte_array_set_size(array: *mut ByteArray, len: c_uint) -> *mut ByteArray;
    fn g_array_free(array: *mut Array, free_segment: c_int) -> *mut c_char;
}

/// The registers of a vCPU that the plugin uses. Only valid on that vCPU's thread, and only while
/// QEMU runs a callback that was registered with access to registers, or that reports an event such
/// as the start of the vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterFile {
    pub(super) rax: Register,
    pub(super) rbx: Register,
    pub(super) rcx: Register,
    pub(super) rdx: Register,
    pub(super) rsp: Register,
    pub(super) cs: Register,
    pub(super) cr4: Register,
    /// Valid only at the start of a block: QEMU does not update it inside.
    pub(super) rip: Register,
    /// All sixteen, in QEMU's order.
    pub(super) general: [Register; 16],
}

/// Names of the general registers.
const GENERAL: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

impl RegisterFile {
    /// Finds them. `None` if QEMU lacks one of them.
    pub(super) fn find() -> Option<RegisterFile> {
        // SAFETY: called when a vCPU starts, on its thread; QEMU returns an array of descriptors
        // whose names are strings.
        let found = unsafe {
            let array = NonNull::new(qemu_plugin_get_registers())?;
            let descriptors = array.as_ref().data.cast_const().cast::<RegisterDescriptor>();
            let found: Vec<(String, Register)> = (0..array.as_ref().len as usize)
                .map(|index| &*descriptors.add(index))
                .filter(|descriptor| !descriptor.name.is_null())
                .filter_map(|descriptor| {
                    let name = CStr::from_ptr(descriptor.name).to_str().ok()?;
                    Some((name.to_owned(), Register(NonNull::new(descriptor.handle)?)))
                })
                .collect();
            g_array_free(array.as_ptr(), 1);
            found
        };
        let named = |name| found.iter().find(|(n, _)| n == name).map(|(_, register)| *register);
        let rax = named("rax")?;
        let mut general = [rax; 16];
        for (register, name) in general.iter_mut().zip(GENERAL) {
            *register = named(name)?;
        }
        Some(RegisterFile {
            general,
            rip: named("rip")?,
            rax,
            rbx: named("rbx")?,
            rcx: named("rcx")?,
            rdx: named("rdx")?,
            rsp: named("rsp")?,
            cs: named("cs")?,
            cr4: named("cr4")?,
        })
    }
}

/// A guest register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register(NonNull<c_void>);

// SAFETY: the handle is a number in a pointer, the same for all vCPUs.
unsafe impl Send for Register {}

thread_local! {
    /// Buffer for values of registers and memory.
    static BYTES: NonNull<ByteArray> = {
        // SAFETY: no arguments. GLib aborts rather than return null.
        unsafe { NonNull::new_unchecked(g_byte_array_new()) }
    };
}

impl Register {
    /// Its value, zero-extended to 8 bytes.
    pub(super) fn get(self) -> u64 {
        // SAFETY: the handle is QEMU's.
        read_bytes(|bytes| unsafe { qemu_plugin_read_register(self.0.as_ptr(), bytes) })
            .unwrap_or_default()
    }

    /// Sets an 8-byte register.
    pub(super) fn set(self, value: u64) {
        with_bytes(value.to_le_bytes(), |bytes| {
            // SAFETY: 8 bytes are the size of the register.
            unsafe { qemu_plugin_write_register(self.0.as_ptr(), bytes) }
        });
    }
}

/// 8 bytes of guest memory at a kernel virtual address; `None` if unmapped.
pub(super) fn memory(address: u64) -> Option<u64> {
    // SAFETY: QEMU resizes the array.
    read_bytes(|bytes| unsafe { qemu_plugin_read_memory_vaddr(address, bytes, 8) })
}

/// Writes 8 bytes of guest memory at a kernel virtual address. Does nothing if unmapped.
pub(super) fn set_memory(address: u64, value: u64) {
    // SAFETY: QEMU writes as many bytes as the array holds.
    with_bytes(value.to_le_bytes(), |bytes| unsafe {
        qemu_plugin_write_memory_vaddr(address, bytes);
    });
}

/// 4 bytes at a physical address, which may be a device register.
pub(super) fn physical(address: u64) -> Option<u32> {
    // SAFETY: QEMU resizes the array.
    read_bytes(|bytes| unsafe { qemu_plugin_read_memory_hwaddr(address, bytes, 4) == 0 })
        .map(|value| value as u32)
}

/// Writes 4 bytes at a physical address. Returns whether it succeeded.
pub(super) fn set_physical(address: u64, value: u32) -> bool {
    // SAFETY: QEMU writes as many bytes as the array holds.
    with_bytes(value.to_le_bytes(), |bytes| unsafe {
        qemu_plugin_write_memory_hwaddr(address, bytes) == 0
    })
}

/// Passes bytes in a GLib array.
fn with_bytes<const N: usize, T>(value: [u8; N], action: impl FnOnce(*mut ByteArray) -> T) -> T {
    BYTES.with(|bytes| {
        // SAFETY: the array belongs to this thread and holds N bytes.
        unsafe {
            g_byte_array_set_size(bytes.as_ptr(), N as c_uint);
            std::ptr::copy_nonoverlapping(value.as_ptr(), bytes.as_ref().data, N);
        }
        action(bytes.as_ptr())
    })
}

/// The first 8 bytes, zero-extended, that `read` puts into an empty GLib array; `None` if it fails.
fn read_bytes(read: impl FnOnce(*mut ByteArray) -> bool) -> Option<u64> {
    BYTES.with(|bytes| {
        // SAFETY: the array belongs to this thread.
        unsafe { g_byte_array_set_size(bytes.as_ptr(), 0) };
        let found = read(bytes.as_ptr());
        let mut value = [0; 8];
        // SAFETY: GLib's array holds `len` bytes at `data`.
        unsafe {
            let len = (bytes.as_ref().len as usize).min(8);
            if len > 0 {
                std::ptr::copy_nonoverlapping(bytes.as_ref().data, value.as_mut_ptr(), len);
            }
        }
        found.then_some(u64::from_le_bytes(value))
    })
}
