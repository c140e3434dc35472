use super::*;

#[test]
fn deep_c_states_are_recognised_by_name() {
    for name in ["C2", "C6", "C10", "C3_ACPI", "C6N", "C7s"] {
        assert!(is_deep(name), "{name}");
    }
    for name in ["POLL", "C1", "C1E", "C1_ACPI", "", "CX"] {
        assert!(!is_deep(name), "{name}");
    }
}

#[test]
fn a_cpu_that_never_sleeps_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let why = deep_c_state(&Root::at(folder.path()), 0).expect_err("no states");
    assert!(why.contains("offers no C-state"), "{why}");
}

/// Only a state deeper than C1 counts, and only what is entered from now on.
#[test]
fn a_stay_in_a_deep_state_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let states = folder.path().join("sys/devices/system/cpu/cpu0/cpuidle");
    for (state, name) in [("state0", "C1"), ("state1", "C6")] {
        std::fs::create_dir_all(states.join(state)).expect("a folder");
        std::fs::write(states.join(state).join("name"), name).expect("a name");
        std::fs::write(states.join(state).join("usage"), "5\n").expect("a count");
    }
    let enter = |state: &str, count: &str| {
        let usage = states.join(state).join("usage");
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(NAP);
                std::fs::write(&usage, count).expect("a count");
            });
            deep_c_state(&Root::at(folder.path()), 0)
        })
    };
    assert_eq!(enter("state0", "9\n"), Err("the CPU entered no C-state deeper than C1".to_owned()));
    assert_eq!(enter("state1", "6\n"), Ok(()));
}
