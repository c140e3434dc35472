#[test]
fn numbers_of_each_length() {
    // The example of Protocol Buffers' documentation, "Base 128 Varints".
    let mut bytes = Vec::new();
    super::push(&mut bytes, 150);
    assert_eq!(bytes, [0x96, 0x01]);
    for number in [0, 0x7F, 0x80, 0x3FFF, 0x4000, u64::MAX] {
        let mut bytes = Vec::new();
        super::push(&mut bytes, number);
        assert_eq!(super::take(&mut bytes.into_iter()), number);
    }
}
