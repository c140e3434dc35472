//! Helpers of every C entry point: no panic may leave it, and arguments are strings.
#![allow(unsafe_code, reason = "arguments come as C strings")]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry point. A panic must not unwind into C, and after one the plugin's
/// records cannot be trusted: it aborts the emulator.
pub(super) fn guarded<T>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // The panic hook has printed the message.
        eprintln!("lbr plugin: stopped by a bug in the plugin, see above; please report it");
        std::process::abort()
    })
}

/// The plugin's arguments, `NAME=VALUE`; the value may be empty or absent.
///
/// # Safety
/// `argv` must hold `argc` zero-terminated strings, or be null.
pub(super) unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<(String, String)> {
    if argv.is_null() {
        return Vec::new();
    }
    (0..usize::try_from(argc).unwrap_or(0))
        .map(|index| {
            // SAFETY: guaranteed by the caller.
            let word = unsafe { CStr::from_ptr(*argv.add(index)) }.to_string_lossy();
            match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (word.into_owned(), String::new()),
            }
        })
        .collect()
}
