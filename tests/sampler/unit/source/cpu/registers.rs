use super::*;

/// A machine with nodes of both drivers, of which msr-safe permits nothing.
#[test]
fn msr_safe_comes_first_where_it_permits_enough() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir_all(at("dev/cpu/0")).expect("a folder");
    for node in ["dev/cpu/0/msr", "dev/cpu/0/msr_safe", "dev/cpu/msr_batch"] {
        std::fs::write(at(node), "").expect("a node");
    }
    std::fs::write(at("dev/cpu/msr_allowlist"), "").expect("a list");
    let root = Root::at(folder.path());
    let found = |needs: &[Need]| {
        let opened = open(None, 0, &root, needs, false);
        opened.map(|registers| registers.driver().name)
    };
    let need = Need { msr: lbr_msr::Msr(0x1D9), write_mask: 1 };
    assert_eq!(found(&[]), Ok("msr-safe"));
    assert_eq!(found(&[need]), Ok("msr"));
    // A named driver is not replaced by another.
    let named = |name| {
        let opened = open(Some(name), 0, &root, &[need], false);
        opened.map(|registers| (registers.driver().name, registers.driver().taints))
    };
    assert_eq!(named("msr"), Ok(("msr", true)));
    assert!(named("msr-safe").is_err_and(|error| !error.to_string().contains("dev/cpu/0/msr:")));
    assert_eq!(named("other"), Err(MsrError::DriverMissing { path: "other".to_owned() }));
    std::fs::remove_file(at("dev/cpu/0/msr")).expect("removed");
    assert!(found(&[need]).is_err());
}
