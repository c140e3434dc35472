use super::*;

#[test]
fn lists_are_read_as_the_kernel_writes_them() {
    let list = |text: &str| text.parse::<CpuList>().map(|list| list.0);
    assert_eq!(list("0"), Ok(vec![0]));
    assert_eq!(list("0-3,6\n"), Ok(vec![0, 1, 2, 3, 6]));
    assert_eq!(list("6,0-1,1"), Ok(vec![0, 1, 6]));
    for wrong in ["", "a", "1-", "-1", "3-1", "0,,1", "+1", "0-99999999", "unknown"] {
        assert_eq!(list(wrong), Err(NotCpus), "{wrong:?}");
    }
}
