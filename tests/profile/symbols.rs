//! Names and code of this test program.
#![allow(unsafe_code, reason = "its own symbol, and the bytes in memory to compare with the file")]

use std::path::Path;

use object::{Object, ObjectSymbol};
use proptest::prelude::*;

use profile::symbols::{Called, Fit, Module, SymbolError, build_id, demangle};

use crate::compiled::compile;
use crate::support::itself::with_symbols;

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lbr_symbol_under_test(value: u64) -> u64 {
    std::hint::black_box(value).wrapping_mul(3)
}

fn exe() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// The address in memory minus the mapping's address equals the symbol table's value: this program
/// is position independent.
#[test]
fn finds_a_function_where_it_runs() {
    let runs_at = lbr_symbol_under_test as *const () as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(exe) = with_symbols() else { return };
    let (start, pgoff) = maps
        .lines()
        .filter(|line| line.ends_with(exe.to_str().unwrap()))
        .find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let start = u64::from_str_radix(start, 16).ok()?;
            let end = u64::from_str_radix(end, 16).ok()?;
            let pgoff = u64::from_str_radix(words.nth(1)?, 16).ok()?;
            (start..end).contains(&runs_at).then_some((start, pgoff))
        })
        .unwrap();
    let mut module = Module::open(&exe).unwrap();
    let addr = module.address_of_offset(runs_at - start + pgoff).unwrap();
    assert_eq!(addr, module.find("lbr_symbol_under_test").unwrap());
    assert_eq!(module.symbol_at(addr + 1), Some(("lbr_symbol_under_test", 1)));
    assert_eq!(lbr_symbol_under_test(2), 6);
    // SAFETY: the function's first bytes are mapped and readable while it exists.
    let code = unsafe { std::slice::from_raw_parts(runs_at as *const u8, 15) };
    assert_eq!(module.code_at(addr).bytes, code);
    // Data symbols do not name code.
    let bytes = std::fs::read(&exe).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let dynamic = elf.symbols().find(|symbol| symbol.name() == Ok("_DYNAMIC")).unwrap();
    assert_eq!(module.symbol_at(dynamic.address()), None);
}

#[test]
fn only_functions_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    if compile("inlined.c", &program, &[]).is_none() {
        return;
    }
    let module = Module::open(&program).unwrap();
    for name in ["_DYNAMIC", "no_such_function_at_all"] {
        let missing = module.find(name).unwrap_err().to_string();
        assert!(missing.contains(&format!(" has no function {name}")), "{missing}");
    }
}

#[test]
fn refusals_say_why() {
    let refused = |path: &str| Module::open(Path::new(path)).unwrap_err();
    assert!(matches!(refused("/nonexistent"), SymbolError::Open { .. }));
    assert!(matches!(refused("/dev/null"), SymbolError::NotAFile(..)));
    assert!(matches!(refused("/proc/self/status"), SymbolError::NotElf { .. }));
    assert_eq!(build_id(Path::new("/dev/null")), None);
    assert_eq!(build_id(Path::new("relative")), None);
}

#[test]
fn addresses_outside_have_no_name() {
    let mut module = Module::open(&exe()).unwrap();
    assert_eq!(module.address_of_offset(u64::MAX), None);
    assert_eq!(module.symbol_at(u64::MAX), None);
    assert!(module.code_at(u64::MAX).bytes.is_empty());
}

#[test]
fn names_are_demangled() {
    assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
    assert_eq!(
        demangle("_ZNSt6vectorIiSaIiEE9push_backEOi"),
        "std::vector<int, std::allocator<int> >::push_back(int&&)"
    );
    assert_eq!(demangle("_ZdlPvm@plt"), "operator delete(void*, unsigned long)@plt");
    assert_eq!(demangle("puts@plt"), "puts@plt");
    assert_eq!(demangle("_Z"), "_Z");
    assert_eq!(demangle("main"), "main");
}

/// A pair of two of the previous pair, 36 times: a terabyte of text.
#[test]
fn a_short_name_that_stands_for_a_long_one_stays_as_it_is() {
    let mut name = "_Z1fSt4pairIiiE".to_owned();
    for number in ('0'..='9').chain('A'..='Z') {
        name += &format!("S_IS{number}_S{number}_E");
    }
    assert_eq!(demangle(&name), name);
    let short = "_Z1fSt4pairIiiES_IS0_S0_E";
    assert!(demangle(short).ends_with("std::pair<std::pair<int, int>, std::pair<int, int> >)"));
}

/// Of many functions, eight are listed, each with its address.
#[test]
fn several_functions_with_one_name_are_listed() {
    let said = |count: u64| {
        let all = (1..=count).map(|at| ("f", Some(at)));
        Called::new("f").one_of(all).unwrap_err().to_string()
    };
    let eight = "f (0x1), f (0x2), f (0x3), f (0x4), f (0x5), f (0x6), f (0x7), f (0x8)";
    assert_eq!(said(8), format!("8 functions f: {eight}"));
    assert_eq!(said(10), format!("10 functions f: {eight} and 2 more"));
}

/// A name also matches without the parts that people omit: parameters, compiler suffixes, template
/// arguments, the trait, namespaces.
#[test]
fn functions_by_part_of_their_name() {
    let clone = "_ZN63_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE";
    for (symbol, written, fit) in [
        ("sort", "sort", Some(Fit::Symbol)),
        ("sort.constprop.0", "sort", Some(Fit::Clone)),
        ("sort.isra.0.cold", "sort", Some(Fit::Clone)),
        ("sort.constprop.0", "sort.constprop.0", Some(Fit::Symbol)),
        ("quicksort", "sort", None),
        // void quicksort<int>(int*, int)
        ("_Z9quicksortIiEvPT_i", "void quicksort<int>", Some(Fit::Name)),
        ("_Z9quicksortIiEvPT_i", "quicksort", Some(Fit::Path)),
        ("_Z9quicksortIiEvPT_i", "quicksort<int>", Some(Fit::Name)),
        ("_Z9quicksortIiEvPT_i", "quicksort<long>", None),
        ("_Z9quicksortIiEvPT_i.part.0", "quicksort", Some(Fit::Path)),
        ("_Z9quicksortIiEvPT_i", "sort", None),
        // std::unique_ptr<Tree<long, 3> > grow<long, 3>(long)
        ("_Z4growIlLi3EESt10unique_ptrI4TreeIT_XT0_EEES2_", "grow", Some(Fit::Path)),
        // step(int), also without its clone's mark; in a namespace without a name
        ("_Z4stepi", "step", Some(Fit::Name)),
        ("_Z4stepi", "step(int)", Some(Fit::Name)),
        ("_Z4stepi.cold", "step", Some(Fit::Clone)),
        ("_ZN12_GLOBAL__N_14stepEi", "step", Some(Fit::Path)),
        // Compare::operator()(int, int) const
        ("_ZNK7CompareclEii", "operator()", Some(Fit::Path)),
        ("_ZNK7CompareclEii", "Compare::operator()", Some(Fit::Name)),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write", Some(Fit::Name)),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "fmt::write", Some(Fit::Path)),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "mt::write", None),
        ("core::fmt::write::h0123456789abcdef", "core::fmt::write", Some(Fit::Clone)),
        // <alloc::vec::Vec<T> as core::clone::Clone>::clone
        (clone, "clone", Some(Fit::Path)),
        (clone, "Vec::clone", Some(Fit::Path)),
        (clone, "Clone::clone", Some(Fit::Path)),
        (clone, "<alloc::vec::Vec<T> as core::clone::Clone>::clone", Some(Fit::Name)),
        (clone, "Vec", None),
    ] {
        assert_eq!(Called::new(written).fit(symbol), fit, "{written} for {symbol}");
    }
    let there = ["main", "quicksort", "partition", "mergesort", "_Z10bubbleSortPi"];
    assert_eq!(Called::new("quiksort").nearest(there), ["quicksort"]);
    assert_eq!(Called::new("bubblesort").nearest(there), ["bubbleSort(int*)"]);
    assert_eq!(Called::new("merge").nearest(there), ["mergesort"]);
    assert_eq!(Called::new("xyzzy").nearest(there), Vec::<String>::new());
    let one = |name, among: &[(&'static str, Option<u64>)]| {
        Called::new(name).one_of(among.iter().copied()).map(|(found, _)| found)
    };
    assert_eq!(one("sort", &[("sort.cold", None), ("sort", None)]), Ok("sort"));
    // Aliases of one address are one symbol.
    assert_eq!(one("f", &[("f.part.0", Some(1)), ("f.isra.0", Some(1))]), Ok("f.part.0"));
    let several = one("sort", &[("_Z4sortIiEvPT_", Some(16)), ("_Z4sortIdEvPT_", Some(32))]);
    let said = several.unwrap_err().to_string();
    assert_eq!(
        said,
        "2 functions sort: void sort<int>(int*) (0x10), void sort<double>(double*) (0x20)"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any file content: no panic.
    #[test]
    fn damaged_object_files(changes in proptest::collection::vec((0usize..4096, any::<u8>()), 1..20)) {
        let Ok(mut bytes) = std::fs::read("/bin/true") else { return Ok(()) };
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("damaged");
        std::fs::write(&path, &bytes).unwrap();
        let _ = build_id(&path);
        if let Ok(mut module) = Module::open(&path) {
            for addr in (0..0x10000).step_by(0x123) {
                let _ = (module.symbol_at(addr), module.address_of_offset(addr));
                let _ = module.code_at(addr);
            }
        }
    }
}
