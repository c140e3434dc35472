use std::num::NonZeroUsize;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::*;

/// Three pages, of which the last is unmapped again.
#[test]
fn memory_is_read_up_to_the_first_page_that_is_not_there() {
    let ours = std::process::id().cast_signed();
    let size = NonZeroUsize::new(3 * PAGE as usize).expect("not 0");
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    #[allow(unsafe_code, reason = "memory that ends at a known address")]
    // SAFETY: a new mapping, of which only the part that is unmapped is not used any more.
    let base = unsafe {
        let base = mmap_anonymous(None, size, protection, MapFlags::MAP_PRIVATE).expect("memory");
        munmap(base.byte_add(2 * PAGE as usize), PAGE as usize).expect("unmapped");
        for (at, byte) in (4090..4102).zip(1..) {
            base.cast::<u8>().add(at).write(byte);
        }
        base.as_ptr() as u64
    };
    let numbers: Vec<u8> = (1..13).collect();
    assert_eq!(bytes_at(ours, base + 4090, 12), numbers, "across pages");
    assert_eq!(bytes_at(ours, base + 4096, 6), numbers[6..]);
    assert_eq!(bytes_at(ours, base + 2 * PAGE - 3, LONGEST), [0; 3]);
    assert!(bytes_at(ours, base + 2 * PAGE, LONGEST).is_empty());
    assert!(bytes_at(ours, 0, LONGEST).is_empty());
}
