//! Recorders, watchdog processes and programs while registers are armed: whatever happens, the
//! registers are restored at the end.

use std::process::{Command, Output, Stdio};

use lbr_msr::soft::SoftCpu;
use lbr_msr::{Msr, MsrWrite};

use crate::support::lbr::{PROGRAM, alone, done, text};
use crate::support::registers::{Registers, may_record_beside};
use crate::support::skip::skipped;

/// The start of each script: `at NAME ARGS...` runs lbr on the registers; a program started by
/// `armed` keeps them until `go` exists or the folder is gone, so that nothing remains of a
/// panicking test.
const WORDS: &str = r#"
trap 'true > go' EXIT
at() { name=$1; shift; "$LBR" "$name" --msr-root "$ROOT" --backend msr -C 0 "$@"; }
armed() { name=$1; shift; exec "$LBR" "$name" --msr-root "$ROOT" --backend msr -C 0 "$@" -- \
    sh -c 'true > ready; while [ -e ready ] && [ ! -e go ]; do sleep 0.05; done'; }
ready() { until [ -e ready ]; do [ -d "$ROOT" ] || exit; sleep 0.05; done; }
child() { for stat in /proc/[0-9]*/stat; do
    read -r pid name _ parent _ < "$stat" && [ "$parent $name" = "$2 ($1)" ] && echo $pid
done 2> /dev/null; }
"#;

/// Runs a script on the registers of a CPU, which must be restored when everything it started has
/// ended.
#[track_caller]
fn on_registers(script: &str) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let mut registers = Registers::new(&SoftCpu::preset("06_5E").unwrap());
    // BTF is set by a debugger, the filter by an earlier user.
    registers.soft.write(Msr(0x1D9), 2).unwrap();
    registers.soft.write(Msr(0x1C8), 4).unwrap();
    let [before, _] = registers.held();
    let mut command = alone(Command::new("sh"));
    command.arg("-c").arg([WORDS, script].concat()).current_dir(folder.path());
    command.env("LBR", PROGRAM).env("ROOT", registers.root());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = registers.run(command, None)?;
    let said = text(&ran.output.stderr);
    assert!(!ran.hung, "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(registers.held()[0], before, "{said}");
    let file = folder.path().join("perf.data");
    if file.exists() {
        done(&["report", "-i", file.to_str().unwrap()]);
    }
    Some(ran.output)
}

/// The script succeeds.
#[track_caller]
fn holds(script: &str) -> Option<String> {
    let output = on_registers(script)?;
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    Some(text(&output.stdout) + &text(&output.stderr))
}

/// The second session reports who uses the registers and how to end that, and writes nothing.
#[test]
fn a_second_session_is_refused() {
    for first in ["dump --arm any,u", "record", "record --placement beside"] {
        if first.contains("beside") && !may_record_beside() {
            continue;
        }
        let Some(said) = holds(&format!(
            "armed {first} > /dev/null & first=$!
             ready
             for second in 'dump --arm any,u' record 'time --hex 90'; do
                 case $second in record) set -- -o other -- true ;; *) set -- ;; esac
                 at $second \"$@\" 2> said
                 [ $? = 3 ] && grep -q 'CPU 0 is already recording branches' said ||
                     {{ cat said; exit 9; }}
             done
             true > go; wait $first"
        )) else {
            return;
        };
        assert!(!said.contains("CPU 0 is already recording branches"), "{first}: {said}");
    }
}

/// Signals that end programs do not end the watchdog, regardless of their sender.
#[test]
fn a_signalled_watchdog_restores_the_registers() {
    holds(
        "armed record > /dev/null & recorder=$!
         ready
         keeper=$(child lbr-keeper $recorder)
         [ -n \"$keeper\" ] || exit 8
         for signal in HUP INT QUIT TERM PIPE; do kill -$signal $keeper || exit 9; done
         kill -KILL $recorder
         true > go
         wait $recorder; [ $? = 137 ]",
    );
}

/// Another user may not end it at all.
#[test]
fn other_users_cannot_signal_the_watchdog() {
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let has_setpriv = Command::new("sh").args(["-c", &format!("{nobody} true")]).output();
    if !has_setpriv.is_ok_and(|output| output.status.success()) {
        return skipped("nobody can be another user here (setpriv, as root)");
    }
    holds(&format!(
        "armed record > /dev/null & recorder=$!
         ready
         keeper=$(child lbr-keeper $recorder)
         {nobody} sh -c \"kill -KILL $keeper || kill -TERM $keeper || kill -STOP $keeper\" && exit 9
         kill -KILL $recorder
         true > go
         wait $recorder; [ $? = 137 ]"
    ));
}

/// Root may, and then the recorder is alone; it still restores the registers if it ends normally.
#[test]
fn a_recorder_without_its_watchdog_restores_the_registers() {
    holds(
        "armed record > /dev/null & recorder=$!
         ready
         kill -KILL $(child lbr-keeper $recorder) || exit 9
         true > go
         wait $recorder",
    );
}

/// The recording ends with the program, however that ends.
#[test]
fn programs_that_die_exec_fork_and_stop_are_recorded() {
    for placement in ["same", "beside"] {
        if placement == "beside" && !may_record_beside() {
            continue;
        }
        for (program, status) in [
            ("exit 3", 3),
            ("kill -KILL $$", 137),
            ("kill -SEGV $$", 139),
            ("exec true", 0),
            ("sh -c true & sh -c true; wait; exit 4", 4),
            ("(sleep 0.1; kill -CONT $$) & kill -STOP $$; exit 5", 5),
        ] {
            let script = format!("at record --placement {placement} -- sh -c '{program}'");
            let Some(output) = on_registers(&script) else { return };
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{placement}: {program}: {said}");
        }
    }
}

/// A process that ran before continues unchanged.
#[test]
fn attaching_and_detaching_leaves_a_process_alone() {
    holds(
        "sleep 60 & process=$!
         allowed() { grep Cpus_allowed_list /proc/$process/status; }
         before=$(allowed)
         for round in 1 2 3 4 5; do
             at record -p $process --for 20 || exit 9
             [ \"$(allowed)\" = \"$before\" ] || exit 8
             kill -0 $process || exit 7
         done
         kill $process",
    );
}

/// The registers are restored even if no more output can be written.
#[test]
fn a_full_disk_ends_only_the_recording() {
    let Some(output) = on_registers("at record -o /dev/full -- sleep 0.2") else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let limited = "ulimit -f 8; at record -F 20000 -- sh -c 'sleep 2' 2> said; status=$?
        grep -q 'kept in' said || [ $status = 0 ] || { cat said; exit 9; }";
    holds(limited);
}
