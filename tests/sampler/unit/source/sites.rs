use super::*;

/// Two addresses with one place in the cache, of two processes.
const SITES: [(u32, u64, BranchType); 3] = [
    (7, 0x1004, BranchType::COND),
    (7, 0x1004 + RECENT as u64, BranchType::RET),
    (8, 0x1004, BranchType::CALL),
];

#[test]
fn each_site_keeps_its_type_until_it_changes() {
    let sites = Sites::default();
    let mut classify = sites.decoding().classify.expect("it knows types");
    assert_eq!(classify(7, 0x1004), None, "not known yet");
    for (pid, address, branch_type) in SITES {
        sites.insert(pid, address, branch_type);
    }
    for (pid, address, branch_type) in [SITES, SITES].concat() {
        assert_eq!(classify(pid, address), Some(branch_type), "{pid} {address:#x}");
    }
    assert_eq!(classify(9, 0x1004), None);
    // Other code at the same address.
    sites.insert(8, 0x1004, BranchType::IND);
    assert_eq!(classify(8, 0x1004), Some(BranchType::IND));
    assert_eq!(classify(7, 0x1004), Some(BranchType::COND));
}

#[test]
fn a_site_is_noted_again_if_its_class_changes() {
    let sites = Sites::default();
    let mut cache = SiteCache::new(&sites);
    cache.note(7, 0x1004, HwBranchType::Cond);
    cache.note(7, 0x1004, HwBranchType::Cond);
    assert_eq!(sites.get(7, 0x1004), Some(BranchType::COND));
    cache.note(7, 0x1004, HwBranchType::Ret);
    assert_eq!(sites.get(7, 0x1004), Some(BranchType::RET));
    // perf has several types of far branches.
    cache.note(7, 0x1008, HwBranchType::Other);
    assert_eq!(sites.get(7, 0x1008), None);
}
