use super::*;

#[test]
fn pages_are_distinguished_by_address() {
    let handlers = Handlers::new();
    handlers.add(0x40_1234);
    let found = [0x40_1234, 0x40_2234, 0x40_1235, 0x40_1274]
        .map(|address| (handlers.may_contain(address), handlers.contains(address)));
    assert_eq!(found, [(true, true), (true, false), (false, false), (false, false)]);
}
