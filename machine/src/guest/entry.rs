//! What every entry from C needs: no panic may leave it, and arguments are
//! strings.
#![allow(unsafe_code, reason = "arguments come as C strings")]

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry from QEMU. A panic must not unwind into C, and
/// after one nothing the plugin records can be trusted: it ends the emulator.
pub(super) fn guarded<T>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // The panic itself has been reported by its hook.
        eprintln!("lbr plugin: stopped by a bug of its own, see above; please report it");
        std::process::abort()
    })
}

/// The plugin's arguments, `NAME=VALUE`. One without a value has an empty one.
///
/// # Safety
/// `argv` must hold `argc` strings that end with a zero byte, or be null.
pub(super) unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<(String, String)> {
    if argv.is_null() {
        return Vec::new();
    }
    (0..usize::try_from(argc).unwrap_or(0))
        .map(|index| {
            // SAFETY: by the caller.
            let word = unsafe { CStr::from_ptr(*argv.add(index)) }.to_string_lossy();
            match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (word.into_owned(), String::new()),
            }
        })
        .collect()
}
