use super::*;

#[test]
fn files_match_by_build_id_then_path_then_name() {
    let files = |files: &[(&str, Option<u8>)]| -> Files {
        let used = |(path, id): &(&str, Option<u8>)| Used {
            path: (*path).to_owned(),
            build_id: id.map(|id| vec![id; 20]),
            ..Used::default()
        };
        files.iter().map(used).enumerate().collect()
    };
    // The file of the second side that the first one of the first side is paired with.
    let partner = |before: &[(&str, Option<u8>)], after: &[(&str, Option<u8>)]| {
        let [before, after] = pair(&files(before), &files(after));
        after.iter().find(|(_, number)| **number == before[&0]).map(|(file, _)| *file)
    };
    let moved = [("/x/p", Some(2)), ("/y/q", Some(1))];
    assert_eq!(partner(&[("/x/p", Some(1))], &moved), Some(1));
    let unknown = [("/y/p", None), ("/x/p", None)];
    assert_eq!(partner(&[("/x/p", None)], &unknown), Some(1));
    // Versions of one file.
    let named = [("/b/p-2", None), ("/b/p-1", None)];
    assert_eq!(partner(&[("/a/p-1", None)], &named), Some(1));
}

/// The pairs of two sides' files, each with its path, locations and functions.
fn pairs_of(sides: [&[(&str, usize, &str)]; 2]) -> Vec<(usize, usize)> {
    let [before, after] = sides.map(|files| -> Files {
        let used = |(path, places, functions): &(&str, usize, &str)| Used {
            path: (*path).to_owned(),
            places: *places,
            functions: functions.split_whitespace().map(Arc::from).collect(),
            ..Used::default()
        };
        files.iter().map(used).enumerate().collect()
    });
    let [before, after] = pair(&before, &after);
    let of = |number: &usize| after.iter().find(|(_, other)| *other == number);
    before.iter().filter_map(|(file, number)| Some((*file, *of(number)?.0))).collect()
}

/// With none of the same name, the file that shares most functions; it is taken once, by the
/// file with most locations.
#[test]
fn files_match_by_their_functions() {
    let after = [("/b/one", 1, "f"), ("/b/two", 1, "f g h"), ("/b/three", 1, "g h")];
    assert_eq!(pairs_of([&[("/a/old", 1, "f g h i")], &after]), [(0, 1)]);
    let before = [("/a/old", 1, "f g h"), ("/a/older", 5, "f g h")];
    assert_eq!(pairs_of([&before, &after]), [(0, 2), (1, 1)]);
    let named = [("/a/p-1", 1, "f g h"), ("/a/q", 1, "")];
    // Functions count more than names without versions.
    assert_eq!(pairs_of([&named, &[("/b/p-2", 1, ""), ("/b/x", 1, "f g h")]]), [(0, 1), (1, 0)]);
    let after = [("/b/z", 1, ""), ("/b/p-10.2", 1, "")];
    assert_eq!(pairs_of([&[("/a/p-9", 1, ""), ("/a/q", 1, "")], &after]), [(0, 1), (1, 0)]);
}

/// Of two with a name, the one with most locations; the last of each side are a pair.
#[test]
fn files_of_equal_names() {
    let before = [("/x/p", 1, ""), ("/y/p", 9, "")];
    assert_eq!(pairs_of([&before, &[("/z/p", 1, "")]]), [(1, 0)]);
    let after = [("/v/p", 1, ""), ("/w/p", 9, "")];
    assert_eq!(pairs_of([&[("/z/p", 1, "")], &after]), [(0, 1)]);
    assert_eq!(pairs_of([&before, &[("/z/p", 1, ""), ("/z/q", 1, "")]]), [(0, 1), (1, 0)]);
    assert_eq!(pairs_of([&[("/x/p", 1, "")], &[("/z/q", 1, "")]]), [(0, 0)]);
    assert_eq!(pairs_of([&[("/x/p", 1, "")], &[("/z/q", 1, ""), ("/z/r", 1, "")]]), []);
}
