use super::*;

#[test]
fn addresses_stay_whole() {
    let file = || Some("[kernel.kallsyms]".to_owned());
    let address = Some(0xffff_ffff_8100_0030);
    let place = Place { address, file: file(), ..Place::default() };
    assert_eq!(place.within(80), "0xffffffff81000030 ([kernel.kallsyms])");
    assert_eq!(place.within(30), "0xffffffff81000030 ([ker…yms])");
    assert_eq!(place.within(22), "0xffffffff81000030");
    assert_eq!(place.clone().after("behind ").within(22), "0xffffffff81000030");
    let place = Place { file: file(), file_offset: Some(0x2dae5a), ..Place::default() };
    assert_eq!(place.within(20), "[kern…syms]+0x2dae5a");
    assert_eq!(place.within(12), "…+0x2dae5a");
}

#[test]
fn the_function_is_named_once() {
    let at = |offset, line| {
        let source = SourceLine { file: "/usr/include/stl_tree.h".into(), line };
        let function = Some("std::_Rb_tree<int>::_M_lower_bound(int)".into());
        let inlined = Frame { function, source: Some(source) };
        let symbol = Some(Named { name: "f(int)".into(), offset });
        let frames = vec![inlined, Frame { function: Some("f".into()), source: None }];
        Place { symbol, frames, ..Place::default() }
    };
    let end = Place { same_function: true, ..at(0x20, 7) }.after(" .. ");
    let inlined = "std::_Rb_tree<int>::_M_lower_bound(int), inlined";
    assert_eq!(end.within(80), format!(" .. +0x20 (stl_tree.h:7 {inlined})"));
    assert_eq!(end.within(40), " .. +0x20 (stl_tree.h:7)");
    assert_eq!(end.within(20), " .. +0x20");
    assert_eq!(at(0x20, 7).within(26), "f(int)+0x20 (stl_tree.h:7)");
}
