//! Text from outside that should be UTF-8: names of symbols, files and threads.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write;

/// Shows bytes that may not be UTF-8. Invalid bytes become `\xff`, one by one, so that different
/// names always look different.
pub trait AsText {
    /// The text.
    fn as_text(&self) -> Cow<'_, str>;
}

impl AsText for [u8] {
    fn as_text(&self) -> Cow<'_, str> {
        if let Ok(text) = core::str::from_utf8(self) {
            return Cow::Borrowed(text);
        }
        let mut text = String::with_capacity(self.len() + 12);
        for chunk in self.utf8_chunks() {
            text.push_str(chunk.valid());
            for byte in chunk.invalid() {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
        Cow::Owned(text)
    }
}

#[cfg(all(feature = "std", unix))]
impl AsText for std::path::Path {
    fn as_text(&self) -> Cow<'_, str> {
        std::os::unix::ffi::OsStrExt::as_bytes(self.as_os_str()).as_text()
    }
}

/// A hexadecimal number of at most 64 bits, `0x` optional.
pub fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    // `from_str_radix` accepts a sign.
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, 16).ok()
}

/// The decimal number that a text starts with.
pub fn leading_number<T: core::str::FromStr>(text: &str) -> Option<T> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

#[cfg(test)]
#[path = "../../tests/lbr_msr/unit/text.rs"]
mod tests;
