use super::*;

#[test]
fn one_that_does_not_end_is_killed() {
    let most = Duration::from_millis(20);
    let error = run_tool(Command::new("sleep").arg("1000"), most).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn memory_and_files_are_limited() {
    let hour = Duration::from_secs(3600);
    let shell = |script: &str| run_tool(Command::new("sh").args(["-c", script]), hour).unwrap();
    let limits = shell("ulimit -v >&2; ulimit -f >&2; ulimit -t >&2");
    let limits = String::from_utf8(limits.stderr).unwrap();
    let found: Vec<u64> = limits.lines().map(|line| line.parse().unwrap()).collect();
    assert!(found[0] <= MEMORY / 1024 && found[1] <= FILE / 512 && found[2] <= 3601);
    let ended = shell("kill -SEGV $$");
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "SIGSEGV ended it");
}
