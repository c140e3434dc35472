//! Names of symbols as people write them.

use std::borrow::Cow;

/// The name as its language writes it; Rust's without the hash.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}").into();
    }
    if name.starts_with("_Z") {
        let demangled = cpp_demangle::Symbol::new(name).ok().and_then(|s| s.demangle().ok());
        if let Some(cpp) = demangled {
            return cpp.into();
        }
    }
    name.into()
}

/// Whether a person who writes `wanted` means the symbol `name`: as in the
/// file, demangled, or demangled without its parameters.
pub(crate) fn is_called(name: &str, wanted: &str) -> bool {
    let demangled = demangle(name);
    // A part that the compiler moved away (`.cold`) has a name of its own.
    *demangled == *wanted
        || (!name.contains('.')
            && demangled.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('(')))
}
