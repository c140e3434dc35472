use super::*;

#[test]
fn what_never_ends_is_not_kept() {
    let mut kept = tempfile::tempfile().expect("a file");
    let mut endless = std::io::repeat(b'\n');
    let refused = copy(&mut endless, &mut kept, 3 << 20).expect_err("it has no end");
    assert!(refused.to_string().contains("within 3 MiB"), "{refused}");
    let mut short = endless.take(3 << 20);
    copy(&mut short, &mut kept, 3 << 20).expect("it fits");
}
