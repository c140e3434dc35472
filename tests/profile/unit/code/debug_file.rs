use super::*;

/// Recorders pad the ids of MD5 (16 bytes) and `xxhash` (8) with zeros to 20 bytes. An id of
/// SHA-1 ends in at least four zeros once in 2^32.
#[test]
fn padded_build_ids_are_cut() {
    let dirs = DebugDirs { roots: vec![PathBuf::from("/r")], ..DebugDirs::default() };
    for (set, len, kept) in
        [(8, 20, 8), (13, 20, 16), (16, 20, 16), (17, 20, 20), (20, 20, 20), (9, 16, 16)]
    {
        let mut id: Vec<u8> = (1..=set).collect();
        id.resize(len, 0);
        let rest: String = id[1..kept].iter().map(|byte| format!("{byte:02x}")).collect();
        let found = dirs.by_build_id(&id);
        let folder = Path::new("/r/.build-id/01");
        assert_eq!(found, [folder.join(&rest), folder.join(format!("{rest}.debug"))], "{set}");
    }
    assert!(dirs.by_build_id(&[1]).is_empty() && dirs.by_build_id(&[0; 20]).is_empty());
}

/// A recorded path leads to no file outside of the folders. With `--symfs`, `/` is not searched.
#[test]
fn programs_are_below_the_folders() {
    let symfs = DebugDirs {
        symfs: Some(PathBuf::from("/s")),
        programs: vec![PathBuf::from("/p")],
        ..DebugDirs::default()
    };
    let recorded = Path::new("/a/../../b");
    let below = ["/s/a/b", "/s/b", "/p/a/b", "/p/b"].map(PathBuf::from);
    assert_eq!(symfs.programs(recorded, None), below);
    let without = DebugDirs { symfs: None, ..symfs };
    let expected = [&below[2..], &[recorded.to_owned()]].concat();
    assert_eq!(without.programs(recorded, None), expected);
}
