use super::*;

#[test]
fn blocks_are_written_by_one_end_or_both() {
    let symbol =
        |name: &str, offset| LocationSpec::Symbol { file: None, name: name.to_owned(), offset };
    let wanted: BlockSpec = "main".parse().expect("a function");
    assert_eq!(wanted, BlockSpec { entry: symbol("main", Some(0)), exit: None });
    let wanted: BlockSpec = "0x40..main+8".parse().expect("both ends");
    let exit = Some(symbol("main", Some(8)));
    assert_eq!(wanted, BlockSpec { entry: LocationSpec::Address(0x40), exit });
    let exit = Some(symbol("f(int)", Some(0x20)));
    for text in ["f(int)+0x10..+0x20", "f(int)+0x10 (f.c:12) .. +0x20 (f.c:14)"] {
        let wanted: BlockSpec = text.parse().expect("as a view prints it");
        assert_eq!(wanted, BlockSpec { entry: symbol("f(int)", Some(0x10)), exit: exit.clone() });
    }
    assert!("main..".parse::<BlockSpec>().is_err() && "..main".parse::<BlockSpec>().is_err());
}
