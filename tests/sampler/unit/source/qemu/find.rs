use super::*;

/// A folder with this script as emulator.
fn installed(script: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let emulator = folder.path().join(emulator(Isa::X86_64));
    std::fs::write(&emulator, script).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&emulator, mode).expect("executable");
    folder
}

// One test for both cases, in sequence: a newly written script cannot be executed while another
// test's forked child still has it open.
#[test]
fn qemu_is_asked_whether_it_accepts_the_plugin() {
    // Like the plugin: status 0 if the library can be read under its name and sees its argument.
    let script = "#!/bin/sh\nfile=${2#file=}\n[ \"$1 ${2##*,} $(cat \"${file%%,*}\")\" = '-plugin probe=on bytes' ]\n";
    let folder = installed(script);
    let qemu = find_in(folder.path().as_os_str(), b"bytes", Isa::X86_64).expect("found");
    assert_eq!(qemu.emulator, folder.path().join(emulator(Isa::X86_64)));

    let folder = installed("#!/bin/sh\necho 'qemu-x86_64: plugins are disabled' >&2\nexit 1\n");
    let error =
        find_in(folder.path().as_os_str(), b"bytes", Isa::X86_64).expect_err("refused").to_string();
    assert!(error.contains("refuses the plugin: qemu-x86_64: plugins are disabled"), "{error}");
}

#[test]
fn missing_parts_are_named() {
    let error = find_in(OsStr::new("/nowhere"), b"bytes", Isa::Aarch64).expect_err("no emulator");
    assert!(matches!(error, Unavailable::NoEmulator("qemu-aarch64")), "{error}");
    let folder = installed("#!/bin/sh\n");
    let error = find_in(folder.path().as_os_str(), b"", Isa::X86_64).expect_err("no plugin");
    assert!(matches!(error, Unavailable::NoPlugin), "{error}");
}
