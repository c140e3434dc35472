//! Texts with symbols instead of addresses, with every command that reads recordings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::lbr::{lbr, rows as json, stderr, stdout};
use crate::support::skip::{skipped, tool};

/// Numbers that look random, and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const FUNCTIONS: u64 = 12;
const SIZE: u64 = 0x200;
/// Distance between branches.
const STEP: u64 = 0x10;

fn name(function: u64) -> String {
    // Some have a common start.
    format!("f{}_{}", function % 4, "x".repeat(function as usize))
}

/// Not in order of their numbers, and far apart.
fn address(function: u64) -> u64 {
    0xFFFF_FFFF_8100_0000 + (function * 7 % FUNCTIONS) * 0x40_0000
}

/// A walk through invented functions: branches by function and offset, oldest first, with the text
/// after the two ends.
struct Program {
    numbers: Numbers,
    at: (u64, u64),
    open: Vec<(u64, u64)>,
}

type Place = (u64, u64);

impl Program {
    fn step(&mut self) -> (Place, Place, String) {
        let (function, offset) = self.at;
        // Each branch has a fixed kind; conditional ones may be not taken.
        let mut site = offset.div_ceil(STEP) * STEP;
        let kind = |site: u64| (function * 31 + site / STEP * 17) % 11;
        while site + STEP < SIZE && kind(site) < 6 && self.numbers.below(3) == 0 {
            site += STEP;
        }
        let from = (function, site);
        let last = site + STEP >= SIZE;
        let (to, what) = match kind(site) {
            6 | 7 if !last => {
                self.open.push((function, site + 5));
                ((site / STEP % FUNCTIONS, 0), "CALL")
            }
            8 if !last => {
                self.open.push((function, site + 2));
                ((self.numbers.below(FUNCTIONS), 0), "IND_CALL")
            }
            9 => ((function, self.numbers.below(4) * 0x40 + 3), "IND"),
            10 => ((function, 0x23), "UNCOND"),
            _ if last || self.open.len() > 6 => match self.open.pop() {
                Some(to) => (to, "RET"),
                None => ((function, 0), "UNCOND"),
            },
            _ => ((function, (site * 5 + 0x31) % (SIZE - STEP)), "COND"),
        };
        self.at = to;
        let missed = if self.numbers.below(9) == 0 { "M" } else { "P" };
        let cycles = 1 + self.numbers.below(7) * self.numbers.below(7);
        (from, to, format!("/{missed}/-/-/{cycles}/{what}/-"))
    }
}

/// One recording as three texts: by address, by symbol, by symbol and file.
fn texts() -> [String; 3] {
    let mut program = Program { numbers: Numbers(7), at: (0, 0), open: Vec::new() };
    let mut texts = [const { String::new() }; 3];
    for _ in 0..150 {
        let mut branches: Vec<_> = (0..32).map(|_| program.step()).collect();
        // Fields that are not recorded.
        for _ in 0..program.numbers.below(50) {
            program.step();
        }
        branches.reverse();
        if program.numbers.below(20) == 0 {
            // The newest twice, as on Skylake.
            branches.insert(0, branches[0].clone());
        }
        for ((from, to, fields), at) in branches.iter().zip(0..) {
            let blank = if at == 0 { "" } else { " " };
            let hex = |(function, offset): Place| format!("{:#x}", address(function) + offset);
            let symbol = |(function, offset): Place| format!("{}+{offset:#x}", name(function));
            let file = |place: Place| format!("{}([kernel.kallsyms])", symbol(place));
            let [by_address, by_symbol, by_file] = &mut texts;
            write!(by_address, " {}/{}{fields} ", hex(*from), hex(*to)).unwrap();
            write!(by_symbol, "{blank}{}/{}{fields}", symbol(*from), symbol(*to)).unwrap();
            write!(by_file, "{blank}{}/{}{fields}", file(*from), file(*to)).unwrap();
        }
        texts.iter_mut().for_each(|text| text.push('\n'));
    }
    texts
}

/// The rows of a view without the data that a recording by symbol lacks, and without their
/// positions in the table: ties are in address order.
fn rows(file: &Path, kallsyms: &Path, view: &str) -> BTreeMap<String, usize> {
    let (file, kallsyms) = (file.to_str().unwrap(), kallsyms.to_str().unwrap());
    let rows = json(&["report", "-i", file, "--kallsyms", kallsyms, "--json", "--view", view]);
    let mut counts = BTreeMap::new();
    for mut row in rows {
        strip(&mut row);
        *counts.entry(row.to_string()).or_default() += 1;
    }
    counts
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Equally frequent targets are in address order too.
            if fields.get("kind").is_some_and(|kind| kind == "conditional") {
                fields.retain(|key, _| !key.starts_with("to"));
            }
            let addresses = [
                "from",
                "to",
                "entry",
                "exit",
                "head",
                "start",
                "end",
                "starts_behind",
                "ends_before",
                "addr",
                "rank",
                "parent_rank",
                "inputs",
                "symbols_only",
                "file",
                "cumulative_share",
                "blocks_crossing",
                "neighbours_apart",
            ];
            fields.retain(|key, _| !addresses.contains(&key.as_str()) && !key.ends_with("_file"));
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => {
            values.iter_mut().for_each(strip);
            values.sort_by_key(Value::to_string);
        }
        _ => {}
    }
}

struct Files {
    _folder: tempfile::TempDir,
    kallsyms: PathBuf,
    texts: [PathBuf; 3],
}

fn files() -> Files {
    let folder = tempfile::tempdir().unwrap();
    let kallsyms = folder.path().join("kallsyms");
    let mut list: Vec<(u64, String)> = (0..FUNCTIONS).map(|f| (address(f), name(f))).collect();
    // The end of each.
    list.extend((0..FUNCTIONS).map(|f| (address(f) + SIZE, format!("behind{f}"))));
    list.sort();
    let lines: String = list.iter().map(|(at, name)| format!("{at:x} t {name}\n")).collect();
    std::fs::write(&kallsyms, lines).unwrap();
    let mut number = 0;
    let texts = texts().map(|text| {
        number += 1;
        let path = folder.path().join(format!("{number}.txt"));
        std::fs::write(&path, text).unwrap();
        path
    });
    Files { _folder: folder, kallsyms, texts }
}

#[test]
fn every_view_counts_as_with_addresses() {
    let Files { kallsyms, texts: [by_address, by_symbol, by_file], _folder } = files();
    for view in ["hot", "mispredict", "outcomes", "blocks", "loops", "callgraph"] {
        let wanted = rows(&by_address, &kallsyms, view);
        assert!(wanted.len() > 12, "{view}");
        for text in [&by_symbol, &by_file] {
            let found = rows(text, &kallsyms, view);
            let odd: Vec<_> = wanted
                .keys()
                .chain(found.keys())
                .filter(|row| wanted.get(*row) != found.get(*row))
                .take(6)
                .collect();
            assert!(odd.is_empty(), "{view} of {}: {odd:#?}", text.display());
        }
    }
    // Equal names with and without a file are different.
    let both = [by_symbol.to_str().unwrap(), by_file.to_str().unwrap()];
    let rows = json(&["report", "-i", both[0], "-i", both[1], "--json"]);
    let once = json(&["report", "-i", both[0], "--json"]);
    assert_eq!(rows.len() - 1, 2 * (once.len() - 1));
}

/// Numbers that represent names are never printed.
#[test]
fn no_address_is_invented() {
    let Files { texts: [_, by_symbol, by_file], _folder, .. } = files();
    let page = _folder.path().join("page.html");
    // With unknown ends among them.
    let odd = _folder.path().join("odd.txt");
    let text = std::fs::read_to_string(&by_symbol).unwrap();
    let mut at = 0;
    let text = text.split('/').map(|part| {
        at += 1;
        let symbol = part.contains("+0x") && at % 40 < 2 && !part.contains(' ');
        if symbol { "[unknown]" } else { part }
    });
    std::fs::write(&odd, text.collect::<Vec<_>>().join("/")).unwrap();
    for file in [&by_symbol, &by_file, &odd] {
        let file = file.to_str().unwrap();
        let mut texts = Vec::new();
        for view in ["hot", "mispredict", "outcomes", "blocks", "loops", "callgraph", "paths"] {
            let out = lbr(&["report", "-i", file, "--view", view, "--limit", "0"]);
            assert_eq!(out.status.code(), Some(0), "{view}: {}", stderr(&out));
            texts.push(stdout(&out));
            for row in json(&["report", "-i", file, "--view", view, "--json"]) {
                for key in ["from", "to", "entry", "exit", "head", "start", "end", "addr"] {
                    assert!(row.get(key).is_none_or(Value::is_null), "{row}");
                }
                texts.push(row.to_string());
            }
        }
        texts.push(stdout(&lbr(&["report", "-i", file, "--view", "callgraph", "--folded"])));
        texts.push(stdout(&lbr(&["lint", "-i", file])));
        texts.push(stdout(&lbr(&["hist", "-i", file])));
        texts.push(stdout(&lbr(&["hist", "-i", file, "--json"])));
        texts.push(stdout(&lbr(&["hist", "-i", file, "--block", "f0_"])));
        texts.push(stdout(&lbr(&["script", "-i", file])));
        texts.push(stdout(&lbr(&["script", "-i", file, "--json"])));
        let out = lbr(&["report", "-i", file, "--html", page.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains("<dd>symbols in place of addresses</dd>"));
        texts.push(page);
        for text in texts {
            assert!(!text.is_empty());
            for mark in ["0x5a", "0x5b", "0xda", "0xdb"] {
                let long = |at: usize| {
                    text[at..].bytes().skip(2).take_while(u8::is_ascii_hexdigit).count() > 8
                };
                let found = text.match_indices(mark).find(|(at, _)| long(*at));
                assert_eq!(found.map(|(at, _)| &text[at.saturating_sub(200)..at + 20]), None);
            }
        }
    }
}

/// Output as text equals the input, whatever else it contains.
#[test]
fn script_prints_symbols_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/texts");
    let text = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let plain = text("perf-6.1-brstacksym.txt");
    let printed = stdout(&lbr(&["script", "-i", &plain]));
    // perf 6.1 prints seven fields and no space before the first.
    let wanted: Vec<String> = std::fs::read_to_string(&plain)
        .unwrap()
        .lines()
        .map(|line| {
            line.split_inclusive("/-/-/-/0/").collect::<Vec<_>>().join("").trim().to_owned()
        })
        .collect();
    let found: Vec<String> = printed.lines().map(|line| line.trim().replace("/- ", " ")).collect();
    let found: Vec<&str> =
        found.iter().map(|line| line.strip_suffix("/-").unwrap_or(line)).collect();
    assert_eq!(found.len(), 24);
    assert_eq!(found, wanted);
    let full = text("perf-6.1-full-brstacksym.txt");
    let first = |args: &[&str]| json(&[&["script", "--json"], args].concat());
    let wanted = first(&["-i", &full]);
    for fields in ["ip,brstack", "pid,tid,time,ip,quality,brstack", "tid,brstack", "cpu,brstack"] {
        let out = lbr(&["script", "-i", &full, "-F", fields]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &out.stdout).unwrap();
        let found = first(&["-i", file.path().to_str().unwrap()]);
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found["entries"], wanted["entries"], "{fields}");
            if fields.contains("ip") {
                assert_eq!(found["ip"], wanted["ip"]);
            }
        }
        assert_eq!(found.len(), 24);
    }
    let entry = &wanted[0]["entries"][0];
    assert!(entry["from"].is_null() && entry["from_symbol"].is_string());
    assert_eq!((&wanted[0]["pid"], &wanted[0]["tid"]), (&14287.into(), &14287.into()));
}

#[test]
fn views_that_need_addresses_report_their_absence() {
    let Files { texts: [_, by_symbol, _], _folder, .. } = files();
    let file = by_symbol.to_str().unwrap();
    let said = |args: &[&str], status: i32| {
        let out = lbr(&[args, &["-i", file]].concat());
        assert_eq!(out.status.code(), Some(status), "{args:?}: {}", stderr(&out));
        stdout(&out) + &stderr(&out)
    };
    let none = "symbols instead of addresses (brstacksym)";
    for what in [&["annotate", "f0_"][..], &["annotate"], &["annotate", "f0_+0x10..f0_+0x20"]] {
        assert!(said(what, 2).contains(none), "{what:?}");
    }
    assert!(said(&["annotate", "0x401000"], 2).contains("outside of all files"));
    let outcomes = said(&["report", "--view", "outcomes"], 0);
    assert!(outcomes.contains("times not taken are not known without code bytes"), "{outcomes}");
    assert!(said(&["report"], 0).starts_with(&format!("{file}: symbols in place of addresses\n")));
    assert!(said(&["lint"], 0).contains("note: no_addresses: 4,8"));
    // Blocks by name; by address there is none.
    let block =
        json(&["report", "-i", file, "--view", "blocks", "--json", "--limit", "1"]).remove(0);
    let end = |end: &str| {
        let symbol = block[format!("{end}_symbol")].as_str().unwrap();
        format!("{symbol}+{:#x}", block[format!("{end}_offset")].as_u64().unwrap())
    };
    let ends = format!("{}..{}", end("entry"), end("exit"));
    let one = said(&["report", "--view", "blocks", "--block", &ends], 0);
    assert!(one.contains(&format!("{} .. {}: ran ", end("entry"), end("exit"))), "{one}");
    assert!(
        said(&["hist", "--block", &ends, "--json"], 0)
            .contains(&end("entry").split('+').next().unwrap().to_owned())
    );
    let none = said(&["report", "--view", "blocks", "--block", "0x10..0x20"], 2);
    assert!(none.contains("no block with this entry and exit ran"), "{none}");
    assert!(said(&["hist", "--block", "0xffffffff81000010"], 2).contains("no block begins at"));
    let none = said(&["report", "--view", "blocks", "--block", "nobody..f0_"], 2);
    assert!(none.contains("has a function nobody"), "{none}");
    // In the order of names, then of offsets.
    let rows = json(&["report", "-i", file, "--sort", "address", "--json"]);
    let places: Vec<(String, u64)> = rows
        .iter()
        .filter(|row| row["view"] == "hot")
        .map(|row| (row["from_symbol"].to_string(), row["from_offset"].as_u64().unwrap()))
        .collect();
    assert!(places.len() > 100);
    for pair in places.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].1 <= pair[1].1, "{pair:?}");
    }
    let mut names: Vec<&str> = places.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len() as u64, FUNCTIONS);
}

/// perf's own text of our recording gives the same counts as the recording.
#[cfg(target_arch = "x86_64")]
#[test]
fn perf_script_text_counts_as_its_recording() {
    use crate::support::programs::{BARE, build};

    let Some(program) = build("nested.S", BARE) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let file = file.to_str().unwrap();
    let record = ["record", "--backend", "soft", "--soft-cpu", "06_5E", "--source", "ptrace"];
    // One stack: the same call twice at the top of another would count as a duplicate, because the
    // distance between two names is unknown.
    let out = lbr(&[&record[..], &["-c", "31", "-o", file, "--", program.name()]].concat());
    assert!(out.status.success(), "{}", stderr(&out));
    let hex = |value: &Value| u64::from_str_radix(&value.as_str().unwrap()[2..], 16).unwrap();
    let hot = |rows: Vec<Value>, end: &dyn Fn(&Value, &str) -> u64| {
        let rows = rows.into_iter().filter(|row| row["view"] == "hot");
        let count = |row: Value| ((end(&row, "from"), end(&row, "to")), row["count"].as_u64());
        rows.map(count).collect::<BTreeMap<_, _>>()
    };
    let wanted = hot(json(&["report", "-i", file, "--json"]), &|row, end| hex(&row[end]));
    assert!(wanted.len() > 10);
    for fields in
        ["brstacksym", "ip,brstacksym", "brstacksym,dso", "comm,pid,time,ip,sym,dso,brstacksym"]
    {
        let perf = tool("perf").args(["script", "-F", fields, "-i", file]).output();
        let Ok(perf) = perf else {
            skipped("perf is not installed");
            return;
        };
        assert!(perf.status.success(), "{}", stderr(&perf));
        let text = folder.path().join("text");
        std::fs::write(&text, &perf.stdout).unwrap();
        // Labels at the same address are one location with two names.
        let end = |row: &Value, end: &str| {
            assert!(row[end].is_null(), "{row}");
            let symbol = row[format!("{end}_symbol")].as_str().unwrap();
            program.at(symbol) + row[format!("{end}_offset")].as_u64().unwrap()
        };
        let rows = json(&["report", "-i", text.to_str().unwrap(), "--json"]);
        assert_eq!(hot(rows, &end), wanted, "{fields}");
    }
}
