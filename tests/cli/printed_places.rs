//! A place that one command prints is taken by every command that takes places.

use crate::support::lbr::{lbr_in, stderr, text};
use crate::support::programs::{BARE, build};

/// `oracle.S` as it was recorded: a place of it as the views print it, and the
/// same in the other spellings.
#[test]
fn printed_locations_are_accepted_as_arguments() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let record = ["record", "--backend", "soft", "--source", "ptrace", "--", program.name()];
    let made = lbr_in(dir.path(), &record);
    assert!(dir.path().join("perf.data").exists(), "{}", stderr(&made));
    let run = |args: &[&str]| {
        let out = lbr_in(dir.path(), args);
        (out.status.code(), text(&out.stdout), stderr(&out))
    };
    let (_, rows, _) = run(&["report", "--view", "blocks", "--json", "--limit", "1"]);
    let row: serde_json::Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    let end = |key: &str| {
        let symbol = row[format!("{key}_symbol")].as_str().unwrap();
        format!("{symbol}+{:#x}", row[format!("{key}_offset")].as_u64().unwrap())
    };
    let (entry, exit) = (end("entry"), end("exit"));
    let remark = "(oracle.S:12)";
    let inlined = "(oracle.S:12 std::f<void (int)>, inlined)";
    for (entry, exit) in [
        (entry.clone(), exit.clone()),
        (format!("{entry} {remark}"), format!("{exit} {remark}")),
        (format!("{entry} {inlined}"), exit.clone()),
        (format!(" {entry} "), format!(" {exit} ")),
        (row["entry"].as_str().unwrap().to_owned(), row["exit"].as_str().unwrap().to_owned()),
    ] {
        let block = format!("{entry}..{exit}");
        let (code, shown, said) = run(&["report", "--view", "blocks", "--block", &block]);
        assert_eq!(code, Some(0), "{block}: {shown} {said}");
        // Without cycle counts there is nothing to draw, but the block is found.
        let (_, _, said) = run(&["hist", "--block", &block]);
        assert!(!said.contains("no block") && !said.contains("not a location"), "{block}: {said}");
        let (code, shown, said) = run(&["annotate", &entry]);
        assert_eq!(code, Some(0), "{entry}: {shown} {said}");
    }
    let (_, shown, _) = run(&["report", "--view", "blocks"]);
    let printed = shown.lines().find(|line| line.contains(" .. +0x")).unwrap();
    let printed = printed.rsplit("  ").next().unwrap();
    let (code, shown, said) = run(&["report", "--view", "blocks", "--block", printed]);
    assert_eq!(code, Some(0), "{printed}: {shown} {said}");
    let (_, _, said) = run(&["hist", "--block", printed]);
    assert!(!said.contains("no block") && !said.contains("not a location"), "{printed}: {said}");
    let (code, shown, said) = run(&["report", "--symbol", &entry]);
    assert_eq!(code, Some(0), "{shown} {said}");
    assert!(!said.contains(&entry), "{said}");
}

/// `libc.so.6+0x26110`: bytes of a file that has no symbol there.
#[test]
fn file_offsets_are_accepted_as_locations() {
    let dir = tempfile::tempdir().unwrap();
    let stacks = "PERF_RECORD_MMAP2 1/1: [0x400000(0x10000) @ 0x1000 00:00 0 0]: r-xp /no/such/lib.so\n \
                  1/1 0x400110/0x400100/P/-/-/7  0x400110/0x400100/P/-/-/7  0x400110/0x400100/P/-/-/7 \n";
    std::fs::write(dir.path().join("text"), stacks).unwrap();
    let (_, shown) = {
        let out = lbr_in(dir.path(), &["report", "-i", "text", "--view", "blocks"]);
        (out.status.code(), text(&out.stdout))
    };
    // 0x400100 is byte 0x1100 of the file.
    assert!(shown.contains("lib.so+0x1100"), "{shown}");
    for block in ["lib.so+0x1100", "lib.so+0x1100..lib.so+0x1110", "/no/such/lib.so+0x1100"] {
        let out = lbr_in(dir.path(), &["hist", "-i", "text", "--block", block]);
        assert_eq!(out.status.code(), Some(0), "{block}: {}", stderr(&out));
        assert!(text(&out.stdout).contains('7'), "{block}: {}", text(&out.stdout));
    }
    let out = lbr_in(dir.path(), &["hist", "-i", "text", "--block", "other.so+0x1100"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    // The branch at 0x400110 is the only row.
    for (symbol, rows) in [("lib.so+0x1110", 1), ("/no/such/lib.so+0x1110", 1)] {
        let out = lbr_in(dir.path(), &["report", "-i", "text", "--symbol", symbol, "--json"]);
        assert_eq!(out.status.code(), Some(0), "{symbol}: {}", stderr(&out));
        let shown = text(&out.stdout);
        assert_eq!(shown.matches("\"from\"").count(), rows, "{symbol}: {shown}");
    }
    let out = lbr_in(dir.path(), &["report", "-i", "text", "--symbol", "lib.so+0x1100", "--json"]);
    assert!(!text(&out.stdout).contains("\"from\""), "{}", text(&out.stdout));
    let out = lbr_in(dir.path(), &["report", "-i", "text", "--symbol", "other.so+0x1110"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    let out = lbr_in(dir.path(), &["annotate", "-i", "text", "lib.so+0x1100"]);
    assert_eq!(out.status.code(), Some(2), "no code to show: {}", text(&out.stdout));
    assert!(!stderr(&out).contains("no function lib.so"), "{}", stderr(&out));
}

/// `record --from` and `report --symbol` take every spelling of a place, `hist --block` and
/// `annotate` also the addresses that `annotate` prints, which have no 0x.
#[test]
fn addresses_lines_and_offsets_are_accepted_as_locations() {
    let Some(program) = build("oracle.S", &[BARE, &["-g"]].concat()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let out = lbr_in(dir.path(), args);
        (out.status.code(), text(&out.stdout), stderr(&out))
    };
    let start = program.at("ind_j");
    let line = profile::symbols::Module::open(&program.path).unwrap().source(start).unwrap();
    let (bare, line) = (format!("{start:x}"), format!("oracle.S:{}", line.line));
    let places = ["ind_j", "ind_j+0x0", &format!("0x{bare}"), &bare, &line];
    let mut recorded = Vec::new();
    for place in places {
        let file = format!("from-{}", recorded.len());
        let record =
            ["record", "--backend", "soft", "--source", "ptrace", "--from", place, "-o", &file];
        let (code, _, said) = run(&[&record[..], &["--", program.name()]].concat());
        assert!(code.is_some() && dir.path().join(&file).exists(), "{place}: {said}");
        let (_, rows, _) = run(&["report", "-i", &file, "--csv"]);
        recorded.push(rows);
        for command in [&["report", "--symbol", place][..], &["annotate", place]] {
            let (code, shown, said) = run(&[command, &["-i", &file]].concat());
            assert_eq!(code, Some(0), "{command:?}: {shown} {said}");
            assert!(!shown.contains("no branches"), "{command:?}: {shown}");
        }
        // Without cycle counts there is nothing to draw, but the block is found.
        let (_, _, said) = run(&["hist", "-i", &file, "--block", place]);
        assert!(said.contains("no cycle counts"), "{place}: {said}");
    }
    assert!(recorded.windows(2).all(|pair| pair[0] == pair[1]), "{recorded:?}");
    for (place, why) in [
        ("0x10", "has no code at 0x10"),
        ("ind_j+0x100000", "has no code at ind_j+0x100000"),
        ("other:ind_j", "has no code at other:ind_j"),
        ("oracle.S:99999", "has no code at oracle.S:99999"),
        ("absent", "has no function absent"),
    ] {
        let (code, _, said) = run(&["record", "--from", place, "--", program.name()]);
        assert_eq!(code, Some(2), "{place}: {said}");
        assert!(said.contains(why), "{place}: {said}");
    }
}
