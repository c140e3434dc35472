//! Executable memory of this process.
#![allow(unsafe_code, reason = "mmap, mprotect, and a copy into the mapping")]

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const WRITABLE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);
pub(crate) const EXECUTABLE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_EXEC);

/// An anonymous mapping, inaccessible at first. Code that runs in it owns its contents: nothing
/// here borrows from it.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<libc::c_void>,
    length: NonZeroUsize,
}

// SAFETY: the mapping belongs to this value alone, and is written through
// `&mut` only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Reserves `length` bytes at an address that the kernel chooses.
    pub(crate) fn reserve(length: u64, flags: MapFlags) -> io::Result<Mapping> {
        let length = usize::try_from(length).ok().and_then(NonZeroUsize::new);
        let length = length.ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::MAP_PRIVATE | flags;
        // SAFETY: new memory, which replaces nothing.
        let start = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, flags)? };
        Ok(Mapping { start, length })
    }

    /// Reserves memory at this address, which must be unmapped.
    pub(crate) fn at(address: u64, length: u64) -> io::Result<Mapping> {
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        let number = |number| usize::try_from(number).ok().and_then(NonZeroUsize::new);
        let length = number(length).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: new memory, which replaces nothing.
        let start =
            unsafe { mmap_anonymous(number(address), length, ProtFlags::PROT_NONE, flags)? };
        let mapping = Mapping { start, length };
        // Linux before 4.17 treats the address as a hint.
        if mapping.address() != address {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(mapping)
    }

    /// Its first address.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(crate) const fn pointer(&self) -> NonNull<libc::c_void> {
        self.start
    }

    /// The address after its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.address() + self.length.get() as u64
    }

    /// Copies `bytes` to whole pages starting at `offset`, then sets their protection.
    pub(crate) fn fill(
        &mut self,
        offset: u64,
        length: u64,
        bytes: &[u8],
        protection: ProtFlags,
    ) -> io::Result<()> {
        if bytes.len() as u64 > length {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.protect(offset, length, WRITABLE)?;
        // SAFETY: `protect` has checked that the range is in the mapping and made it writable; it
        // is at least as long as the bytes.
        unsafe {
            let into = self.start.byte_add(offset as usize).cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len());
        }
        if protection == WRITABLE { Ok(()) } else { self.protect(offset, length, protection) }
    }

    /// Changes the protection of whole pages.
    pub(crate) fn protect(
        &mut self,
        offset: u64,
        length: u64,
        protection: ProtFlags,
    ) -> io::Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > self.length.get() as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range is in the mapping, which nothing borrows from.
        unsafe { mprotect(self.start.byte_add(offset as usize), length as usize, protection)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: only this value owns the mapping, and nothing borrows from it or runs in it.
        // munmap cannot fail on a range that mmap returned.
        let _ = unsafe { munmap(self.start, self.length.get()) };
    }
}
