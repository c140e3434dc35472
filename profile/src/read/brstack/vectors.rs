//! Vector instructions for parsing entries.
#![allow(unsafe_code, reason = "vector instructions count as unsafe wherever they are called")]

use core::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi8, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8,
    _mm_cvtsi128_si64, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
    _mm_packus_epi16, _mm_set1_epi8, _mm_set1_epi16, _mm_setr_epi8, _mm_slli_epi16, _mm_srli_epi16,
    _mm_sub_epi8, _mm256_add_epi8, _mm256_and_si256, _mm256_blendv_epi8,
    _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_cmpeq_epi8,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_maddubs_epi16, _mm256_min_epu8,
    _mm256_movemask_epi8, _mm256_or_si256, _mm256_set_m128i, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_shuffle_epi8, _mm256_sub_epi8,
};

use super::run::{self, Vectors};
use crate::stack::RawBranch;

/// [`run::entries`] with the best instructions of this CPU.
pub(super) fn entries(text: &[u8], entries: &mut Vec<RawBranch>) -> usize {
    let has = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2");
    if has {
        // SAFETY: the CPU was just checked for the required features.
        unsafe { entries_avx2(text, entries) }
    } else {
        run::entries::<Sse2>(text, entries)
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
fn entries_avx2(text: &[u8], entries: &mut Vec<RawBranch>) -> usize {
    run::entries::<Avx2>(text, entries)
}

/// Available on every x86-64.
pub(super) struct Sse2;

impl Vectors for Sse2 {
    #[inline(always)]
    fn ends(text: &[u8; 64]) -> u64 {
        let (quarters, _) = text.as_chunks::<16>();
        quarters.iter().rev().fold(0, |bits, quarter| {
            // SAFETY: every x86-64 has SSE2.
            bits << 16 | u64::from(unsafe { ends_sse2(quarter) })
        })
    }

    #[inline(always)]
    fn hex(first: &[u8; 16], second: &[u8; 16]) -> (u64, u64, u32) {
        // SAFETY: every x86-64 has SSE2.
        let (first, second) = unsafe { (hex_sse2(first), hex_sse2(second)) };
        (first.0, second.0, first.1 | second.1 << 16)
    }
}

#[target_feature(enable = "sse2")]
#[inline]
fn load_sse2(text: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes, any alignment.
    unsafe { _mm_loadu_si128(text.as_ptr().cast()) }
}

#[target_feature(enable = "sse2")]
#[inline]
fn ends_sse2(text: &[u8; 16]) -> u32 {
    let text = load_sse2(text);
    let slash = _mm_cmpeq_epi8(text, _mm_set1_epi8(b'/' as i8));
    let blank = _mm_cmpeq_epi8(_mm_min_epu8(text, _mm_set1_epi8(b' ' as i8)), text);
    _mm_movemask_epi8(_mm_or_si128(slash, blank)) as u32
}

#[target_feature(enable = "sse2")]
#[inline]
fn hex_sse2(text: &[u8; 16]) -> (u64, u32) {
    let text = load_sse2(text);
    let each = |byte: u8| _mm_set1_epi8(byte as i8);
    let up_to = |value: __m128i, most| _mm_cmpeq_epi8(_mm_min_epu8(value, each(most)), value);
    let decimal = _mm_sub_epi8(text, each(b'0'));
    let letter = _mm_sub_epi8(_mm_or_si128(text, each(0x20)), each(b'a'));
    let (is_decimal, is_letter) = (up_to(decimal, 9), up_to(letter, 5));
    let values = _mm_or_si128(
        _mm_and_si128(is_decimal, decimal),
        _mm_andnot_si128(is_decimal, _mm_and_si128(_mm_add_epi8(letter, each(10)), each(0x0F))),
    );
    // Two digits per byte, the first in the upper half.
    let pairs = _mm_or_si128(_mm_slli_epi16::<4>(values), _mm_srli_epi16::<8>(values));
    let pairs = _mm_and_si128(pairs, _mm_set1_epi16(0xFF));
    let value = _mm_cvtsi128_si64(_mm_packus_epi16(pairs, pairs)) as u64;
    (value.swap_bytes(), _mm_movemask_epi8(_mm_or_si128(is_decimal, is_letter)) as u32)
}

/// Most CPUs since 2013 (Haswell) and 2015 (Excavator).
struct Avx2;

impl Vectors for Avx2 {
    #[inline(always)]
    fn ends(text: &[u8; 64]) -> u64 {
        // SAFETY: only called from `entries_avx2`.
        unsafe { ends_avx2(text) }
    }

    #[inline(always)]
    fn hex(first: &[u8; 16], second: &[u8; 16]) -> (u64, u64, u32) {
        // SAFETY: only called from `entries_avx2`.
        unsafe { hex_avx2(first, second) }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn ends_avx2(text: &[u8; 64]) -> u64 {
    // Indexed by the lower half of a byte: the byte with it that ends a field.
    let table = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        b' ' as i8,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        b'\t' as i8,
        b'\n' as i8,
        -1,
        0x0C,
        b'\r' as i8,
        -1,
        b'/' as i8,
    ));
    let half = |at: usize| {
        // SAFETY: 32 readable bytes from either offset, any alignment.
        let text: __m256i = unsafe { _mm256_loadu_si256(text.as_ptr().add(at).cast()) };
        let is_end = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, text), text);
        u64::from(_mm256_movemask_epi8(is_end) as u32)
    };
    half(0) | half(32) << 32
}

#[target_feature(enable = "avx2")]
#[inline]
fn hex_avx2(first: &[u8; 16], second: &[u8; 16]) -> (u64, u64, u32) {
    let text = _mm256_set_m128i(load_sse2(second), load_sse2(first));
    let each = |byte: u8| _mm256_set1_epi8(byte as i8);
    let up_to = |value: __m256i, most| _mm256_cmpeq_epi8(_mm256_min_epu8(value, each(most)), value);
    let decimal = _mm256_sub_epi8(text, each(b'0'));
    let letter = _mm256_sub_epi8(_mm256_or_si256(text, each(0x20)), each(b'a'));
    let (is_decimal, is_letter) = (up_to(decimal, 9), up_to(letter, 5));
    let values = _mm256_blendv_epi8(_mm256_add_epi8(letter, each(10)), decimal, is_decimal);
    let values = _mm256_and_si256(values, each(0x0F));
    // Two digits per number.
    let pairs = _mm256_maddubs_epi16(values, _mm256_set1_epi16(0x0110));
    // The last pair lowest.
    let order = _mm_setr_epi8(14, 12, 10, 8, 6, 4, 2, 0, -1, -1, -1, -1, -1, -1, -1, -1);
    let numbers = _mm256_shuffle_epi8(pairs, _mm256_broadcastsi128_si256(order));
    let first = _mm_cvtsi128_si64(_mm256_castsi256_si128(numbers)) as u64;
    let second = _mm_cvtsi128_si64(_mm256_extracti128_si256::<1>(numbers)) as u64;
    (first, second, _mm256_movemask_epi8(_mm256_or_si256(is_decimal, is_letter)) as u32)
}
