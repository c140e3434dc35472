//! Locations as users type them.

use lbr_msr::record::{Event, Mmap};
use profile::maps::{Location, Maps};
use profile::place::{LocationSpec, PlaceError, Span};
use profile::symbols::{DebugDirs, Sources};

use crate::compiled::{compile, extent, locate, map, symbol};
use crate::support::mapping::mapping;

fn place(text: &str) -> LocationSpec {
    text.parse().unwrap()
}

fn named(file: Option<&str>, name: &str, offset: Option<u64>) -> LocationSpec {
    LocationSpec::Symbol { file: file.map(str::to_owned), name: name.to_owned(), offset }
}

#[test]
fn texts() {
    for (text, expected) in [
        ("0x401136", LocationSpec::Address(0x40_1136)),
        ("0Xabcdef", LocationSpec::Address(0xab_cdef)),
        ("401136", LocationSpec::Address(0x40_1136)),
        ("55d0deadbeef", LocationSpec::Address(0x55d0_dead_beef)),
        ("ffffffff81000000", LocationSpec::Address(0xffff_ffff_8100_0000)),
        // Only letters: a name.
        ("facade", named(None, "facade", None)),
        ("main", named(None, "main", None)),
        ("main+1a", named(None, "main", Some(0x1a))),
        ("main+0x1a", named(None, "main", Some(0x1a))),
        ("main+10", named(None, "main", Some(0x10))),
        ("ns::f(int)", named(None, "ns::f(int)", None)),
        ("ns::f(int)+8", named(None, "ns::f(int)", Some(8))),
        ("A::operator+", named(None, "A::operator+", None)),
        ("A::operator++", named(None, "A::operator++", None)),
        ("A::operator+(A const&)", named(None, "A::operator+(A const&)", None)),
        ("libc.so.6:malloc", named(Some("libc.so.6"), "malloc", None)),
        ("libc.so.6:malloc+4", named(Some("libc.so.6"), "malloc", Some(4))),
        ("lib.so:ns::f", named(Some("lib.so"), "ns::f", None)),
        ("lib.so:A::operator+", named(Some("lib.so"), "A::operator+", None)),
        ("foo.c:12", LocationSpec::Line { file: "foo.c".to_owned(), line: 12 }),
        ("src/foo.c:12", LocationSpec::Line { file: "src/foo.c".to_owned(), line: 12 }),
    ] {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
        assert_eq!(place(&expected.to_string()), expected, "{text} -> {expected}");
    }
    for text in [
        "",
        " ",
        "0x",
        "0xg",
        "12",
        "foo.c:0",
        "foo.c:99999999999",
        "+5",
        ":",
        ":5",
        "a:",
        "::5",
        "0x1ffffffffffffffff",
    ] {
        let refused = text.parse::<LocationSpec>();
        assert!(refused.is_err(), "{text:?}: {refused:?}");
    }
}

/// Everything in `inlined.c`: its meaning in the file.
#[test]
fn functions_addresses_and_lines() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let program = dir.join("program");
    let Some(()) = compile("inlined.c", &program, &["-O2", "-g", "-pie", "-fPIE"]) else { return };
    let none = || Sources { debug: DebugDirs::default(), ..Sources::default() };
    let mut maps = Maps::with_sources(none());
    let bias = 0x5555_5555_4000;
    map(&mut maps, 7, &program, bias);
    let (step, size) = extent(&program, "step");
    let at = |maps: &mut Maps, addr: u64| locate(maps, 7, addr + bias);
    let start = at(&mut maps, step);
    assert_eq!(maps.resolve(&place("step"), &|_| 0.0), Ok(vec![Span { start, len: size }]));
    assert_eq!(maps.resolve(&place("program:step"), &|_| 0.0), Ok(vec![Span { start, len: size }]));
    let within = at(&mut maps, step + 4);
    assert_eq!(maps.resolve(&place("step+4"), &|_| 0.0), Ok(vec![Span { start: within, len: 1 }]));
    let address = LocationSpec::Address(step + 4 + bias);
    assert_eq!(maps.resolve(&address, &|_| 0.0), Ok(vec![Span { start: within, len: 1 }]));
    let function = maps.function(within).unwrap();
    assert_eq!((function.name.as_str(), function.address), ("step", step));
    assert_eq!(function.offsets.end - function.offsets.start, size);

    // Line 9 is the mark inside the inlined code, line 16 its call.
    let mark = at(&mut maps, symbol(&program, "in_inner"));
    let spans = maps.resolve(&place("inlined.c:9"), &|_| 0.0).unwrap();
    assert!(spans.iter().any(|span| span.contains(mark)), "{spans:?}");
    let other = at(&mut maps, symbol(&program, "in_middle"));
    assert!(!spans.iter().any(|span| span.contains(other)), "{spans:?}");
    let by_folder = maps.resolve(&place("programs/inlined.c:9"), &|_| 0.0);
    assert_eq!(by_folder.as_ref(), Ok(&spans));

    // Locations without code.
    assert!(matches!(maps.resolve(&place("nobody"), &|_| 0.0), Err(PlaceError::NoSymbol { .. })));
    assert!(matches!(
        maps.resolve(&place("libx.so:step"), &|_| 0.0),
        Err(PlaceError::NoSymbol { .. })
    ));
    assert_eq!(
        maps.resolve(&place("step+ffff"), &|_| 0.0),
        Err(PlaceError::BeyondFunction { name: "step".to_owned(), size, offset: 0xffff })
    );
    assert!(matches!(maps.resolve(&place("other.c:9"), &|_| 0.0), Err(PlaceError::NoSource(..))));
    assert!(matches!(maps.resolve(&place("lined.c:9"), &|_| 0.0), Err(PlaceError::NoSource(..))));
    // Line 2 is a comment.
    let Err(PlaceError::NoCode { below, above, .. }) =
        maps.resolve(&place("inlined.c:2"), &|_| 0.0)
    else {
        panic!("a comment has code");
    };
    assert_eq!((below, above), (None, Some(8)));
    let nowhere = LocationSpec::Address(0x1234_5678);
    let span = Span { start: Location::Address(0x1234_5678), len: 1 };
    assert_eq!(maps.resolve(&nowhere, &|_| 0.0), Ok(vec![span]));

    // Two programs with the same function: the file must be given.
    let second = dir.join("second");
    compile("inlined.c", &second, &["-O2", "-g", "-no-pie"]).unwrap();
    map(&mut maps, 8, &second, 0);
    let Err(error @ PlaceError::Ambiguous { .. }) = maps.resolve(&place("step"), &|_| 0.0) else {
        panic!("one of two was taken");
    };
    let said = error.to_string();
    assert!(said.contains("program:step (") && said.contains(" or second:step ("), "{said}");
    assert_eq!(maps.resolve(&place("program:step"), &|_| 0.0), Ok(vec![Span { start, len: size }]));
}

/// An address can have another meaning in another process.
#[test]
fn an_address_of_several_processes() {
    let mut maps = Maps::default();
    maps.event(&mapping(1, 0x40_0000, 0x1000, 0, "/nonexistent/one"));
    maps.event(&mapping(2, 0x40_0000, 0x1000, 0, "/nonexistent/two"));
    let refused = maps.resolve(&place("0x400010"), &|_| 0.0).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("/nonexistent/one") && said.contains("/nonexistent/two"), "{said}");
    maps.event(&mapping(3, 0x50_0000, 0x1000, 0, "/nonexistent/one"));
    let only = maps.resolve(&place("0x500010"), &|_| 0.0).unwrap();
    assert!(matches!(only[..], [Span { start: Location::File { offset: 0x10, .. }, len: 1 }]));
}

/// Data is not code. Some recorders do not give the protection, which is then 0.
#[test]
fn mappings_without_code() {
    let mut maps = Maps::default();
    for (at, prot) in (1..).zip([0, 1, 1 | 2, 4, 1 | 4]) {
        let Event::Mmap(map) = mapping(1, at * 0x10_0000, 0x1000, 0, "/nowhere/a") else {
            unreachable!()
        };
        maps.event(&Event::Mmap(Box::new(Mmap { prot, ..*map })));
    }
    let space = maps.space(Some(1));
    let is_known = |at: u64| maps.locate(space, at * 0x10_0000).file().is_some();
    assert_eq!((1..=5).filter(|at| is_known(*at)).collect::<Vec<_>>(), [1, 4, 5]);
}

/// Mappings replaced again and again between samples: sampled ones keep their meaning, and the
/// current ones are known.
#[test]
fn mappings_replaced_without_end() {
    let mut maps = Maps::default();
    for at in 0..4096 {
        maps.event(&crate::recorded::map(
            "/nowhere/a",
            0x10_0000 + at * 0x1000,
            0x1000,
            at * 0x1000,
        ));
    }
    let first = maps.space(Some(100));
    let mut last = first;
    for round in 0..1100 {
        let path = format!("/nowhere/{}", round % 2);
        maps.event(&crate::recorded::map(&path, 0x10_0000, 0x1000, 0));
        last = maps.space(Some(100));
    }
    let known = |space, addr| matches!(maps.locate(space, addr), Location::File { .. });
    assert!(known(first, 0x10_0000) && known(first, 0x10_1000));
    assert!(known(last, 0x10_0000) && known(last, 0x10_1000));
    assert_eq!(maps.unkept(), Default::default());
    let path = |space| maps.path_of(maps.locate(space, 0x10_0000)).map(str::to_owned);
    assert_eq!(path(first).as_deref(), Some("/nowhere/a"));
    assert_eq!(path(last).as_deref(), Some("/nowhere/1"));
}
