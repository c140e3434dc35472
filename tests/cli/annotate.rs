//! `lbr annotate`, on programs with instruction counts from another method.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::lbr::{done, lbr, text};
use crate::support::programs::{BARE, Program, build};
use crate::support::skip::{skipped, tool};

#[track_caller]
fn json(args: &[&str]) -> Vec<Value> {
    let printed = done(&[&["annotate", "--json"], args].concat());
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A refusal: status 2, and the message.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let out = lbr(&[&["annotate"], args].concat());
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{}", text(&out.stderr));
    text(&out.stderr)
}

fn hex(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn of_kind<'a>(rows: &'a [Value], kind: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["kind"] == kind).collect()
}

struct Recorded {
    file: String,
    folder: tempfile::TempDir,
}

/// Records; `None`, with a message, if tracing is not permitted.
fn record(program: &str, options: &[&str]) -> Option<Recorded> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data").to_str().unwrap().to_owned();
    let mut args = vec!["record", "--backend", "soft", "--source", "ptrace", "-o", &file];
    args.extend(options);
    args.extend(["--", program]);
    let out = lbr(&args);
    if out.status.code() == Some(4) {
        skipped(text(&out.stderr));
        return None;
    }
    Some(Recorded { file, folder })
}

const PLAIN: [&str; 6] = [
    "-O1",
    "-g",
    "-fno-stack-protector",
    "-fno-tree-loop-distribute-patterns",
    "-fcf-protection=none",
    "-fno-pie",
];

fn annotated() -> Option<Program> {
    build("annotated.c", &[BARE, &PLAIN].concat())
}

/// Callgrind's count of each instruction; `None`, with a message, if it is missing.
fn callgrind(dir: &Path, program: &str) -> Option<HashMap<u64, u64>> {
    let file = dir.join("callgrind.out");
    let flags = ["dump-instr=yes", "compress-pos=no", "compress-strings=no"];
    let ran = tool("valgrind")
        .args(["-q", "--tool=callgrind"])
        .args(flags.map(|flag| format!("--{flag}")))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .output();
    if !ran.is_ok_and(|out| !text(&out.stderr).contains("cannot")) || !file.exists() {
        skipped("no valgrind with callgrind here");
        return None;
    }
    let printed = std::fs::read_to_string(file).unwrap();
    let mut counts = HashMap::new();
    let mut lines = printed.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("calls=") {
            // The next line has the callee's cost.
            lines.next();
        } else if line.starts_with("0x") {
            let words: Vec<&str> = line.split(' ').collect();
            let address = u64::from_str_radix(&words[0][2..], 16).unwrap();
            *counts.entry(address).or_default() += words[2].parse::<u64>().unwrap();
        }
    }
    Some(counts)
}

#[test]
fn every_instruction_ran_as_often_as_callgrind_says() {
    let Some(program) = annotated() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(truth) = callgrind(dir.path(), program.name()) else { return };
    for count in ["31", "7"] {
        let Some(recorded) = record(program.name(), &["-c", count]) else { return };
        let (mut compared, mut cold) = (0, 0);
        for function in ["work", "deep", "add", "mix", "run"] {
            let rows = json(&[function, "-i", &recorded.file]);
            assert_eq!((&rows[0]["symbol"], &rows[0]["exact"]), (&function.into(), &true.into()));
            for insn in of_kind(&rows, "instruction") {
                let address = hex(&insn["address"]);
                // Code after the last branch is not recorded: run's return is that branch.
                let wanted = truth.get(&address).copied().unwrap_or(0);
                assert_eq!(insn["count"], wanted, "-c {count}: {insn}");
                compared += 1;
                cold += u32::from(wanted == 0);
            }
        }
        // Nearly all of it ran.
        assert!(compared > 100 && cold > 0 && cold < 20, "{compared} {cold}");
    }
}

/// Bytes and mnemonics of `objdump -d` by address.
fn objdump(program: &str) -> Option<BTreeMap<u64, (String, String)>> {
    let args = ["-d", "-w", "-M", "intel", "--insn-width=16", program];
    let out = tool("objdump").args(args).output();
    let Some(out) = out.ok().filter(|out| out.status.success()) else {
        skipped("no objdump here");
        return None;
    };
    let printed = text(&out.stdout);
    let lines = printed.lines().filter_map(|line| {
        let (address, rest) = line.trim_start().split_once(":\t")?;
        let (bytes, words) = rest.split_once('\t')?;
        let mnemonic = words.split_whitespace().next()?.to_owned();
        Some((u64::from_str_radix(address, 16).ok()?, (bytes.replace(' ', ""), mnemonic)))
    });
    Some(lines.collect())
}

#[test]
fn objdump_sees_the_same_instructions() {
    let Some(program) = annotated() else { return };
    let Some(theirs) = objdump(program.name()) else { return };
    let Some(recorded) = record(program.name(), &[]) else { return };
    let mut seen = 0;
    for function in ["work", "deep", "add", "mix", "run", "idle", "_start"] {
        let rows = json(&[function, "-i", &recorded.file]);
        let (start, end) = (hex(&rows[0]["file_address"]), hex(&rows[0]["end"]));
        assert_eq!(start, program.at(function));
        let ours: BTreeMap<u64, (String, String)> = of_kind(&rows, "instruction")
            .iter()
            .map(|insn| {
                let word = |key: &str| insn[key].as_str().unwrap().to_owned();
                (hex(&insn["address"]), (word("bytes"), word("mnemonic")))
            })
            .collect();
        let wanted: BTreeMap<u64, (String, String)> =
            theirs.range(start..end).map(|(address, line)| (*address, line.clone())).collect();
        assert_eq!(ours, wanted, "{function}");
        seen += ours.len();
    }
    assert!(seen > 100);
}

/// A position-independent program: text has the addresses of objdump, on request those of its
/// process, which JSON always has.
#[test]
fn text_has_the_addresses_of_the_file() {
    let Some(program) = build("calls.c", &["-O1", "-g", "-pie", "-fPIE"]) else { return };
    let Some(theirs) = objdump(program.name()) else { return };
    let Some(recorded) = record(program.name(), &[]) else { return };
    let printed = done(&["annotate", "pick", "-i", &recorded.file]);
    let at_load = done(&["annotate", "pick", "-i", &recorded.file, "--load-addresses"]);
    let rows = json(&["pick", "-i", &recorded.file]);
    let insns = of_kind(&rows, "instruction");
    let first = hex(&rows[0]["file_address"]);
    let shift = hex(&rows[0]["address"]) - first;
    assert!(shift > 0 && printed.contains(&format!(": {first:#x}..")), "{printed}");
    for insn in &insns {
        let (at, mnemonic) = (hex(&insn["address"]), insn["mnemonic"].as_str().unwrap());
        assert_eq!(theirs[&(at - shift)].1, mnemonic);
        let has = |text: &str, at: u64| text.contains(&format!(" {at:x}  {mnemonic}"));
        assert!(has(&printed, at - shift) && has(&at_load, at), "{at:#x}: {printed}");
    }
    // Targets in operands are on the same scale.
    let jumps = printed.lines().filter_map(|line| line.split_once("  ja     0x"));
    let to = |(_, rest): (&str, &str)| {
        let digits = rest.split_whitespace().next().unwrap();
        u64::from_str_radix(digits, 16).unwrap()
    };
    let targets: Vec<u64> = jumps.map(to).collect();
    assert!(!targets.is_empty() && targets.iter().all(|to| theirs.contains_key(to)), "{printed}");
    // The command takes what it prints.
    assert_eq!(done(&["annotate", &format!("{first:#x}"), "-i", &recorded.file]), printed);
    let range = format!("{first:#x}..{:#x}", first + 4);
    let shown = done(&["annotate", &range, "-i", &recorded.file]);
    assert!(shown.contains(&format!(": {range}, ")), "{shown}");
}

/// Counts of every instruction of outcomes.S from its generator alone.
#[test]
fn counts_follow_from_the_source() {
    let Some(program) = build("outcomes.S", BARE) else { return };
    let Some(recorded) = record(program.name(), &[]) else { return };
    let (mut x, mut bit, mut cases, mut f1) = (12345u32, 0, [0u64; 4], 0);
    for _ in 0..1000 {
        x = x.wrapping_mul(1_103_515_245).wrapping_add(12345);
        bit += u64::from(x & 0x10000 != 0);
        cases[(x >> 20 & 3) as usize] += 1;
        f1 += u64::from(x >> 24 & 1 == 1);
    }
    let rows = json(&["top..f0", "-i", &recorded.file]);
    let by_address: HashMap<u64, &Value> =
        of_kind(&rows, "instruction").into_iter().map(|i| (hex(&i["address"]), i)).collect();
    let at = |label: &str| by_address[&program.at(label)];
    let wanted = [
        ("top", 1000),
        ("b_bit", 1000),
        ("l_bit", bit),
        ("skip", 1000),
        ("case0", cases[0]),
        ("case1", cases[1]),
        ("case2", cases[2]),
        ("case3", cases[2] + cases[3]),
        ("join", 1000),
        ("b_call", 1000),
        ("back", 1000),
        ("b_loop", 1000),
    ];
    for (label, count) in wanted {
        assert_eq!(at(label)["count"], count, "{label}");
        assert!(label.starts_with("b_") || at(label)["leads"] == true, "{label}");
    }
    let jz = &at("b_bit")["branch"];
    assert_eq!((&jz["taken"], &jz["not_taken"]), (&(1000 - bit).into(), &bit.into()));
    assert_eq!(jz["taken_share"], (1000 - bit) as f64 / 1000.0);
    assert!(jz["taken_low"].is_null() && jz["mispredicted"].is_null());
    assert_eq!(hex(&jz["target"]["address"]), program.at("skip"));
    assert_eq!(at("b_bit")["branch"]["target"]["index"], at("skip")["index"]);
    let switch = at("b_switch")["branch"]["targets"].as_array().unwrap();
    let went: HashMap<&str, u64> = switch
        .iter()
        .map(|went| (went["symbol"].as_str().unwrap(), went["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(went, ["case0", "case1", "case2", "case3"].into_iter().zip(cases).collect());
    let call = at("b_call")["branch"]["targets"].as_array().unwrap();
    let to_f1 = call.iter().find(|went| went["symbol"] == "f1").unwrap();
    assert_eq!((&to_f1["count"], &to_f1["index"]), (&f1.into(), &Value::Null));
}

/// The page as people see it: columns under their headings, arrows from the jumps to their targets,
/// names of callees.
#[test]
fn text_is_aligned_and_drawn() {
    let flags = [BARE, &["-Wl,-Ttext=0x4ed000"]].concat();
    let Some(program) = build("textbook.S", &flags) else { return };
    let Some(recorded) = record(program.name(), &[]) else { return };
    let printed = done(&["annotate", "loop", "-i", &recorded.file]);
    let lines: Vec<&str> = printed.lines().collect();
    let title =
        format!("loop in {}: 0x4eda10..0x4eda2f, 11 instructions, 46 executed", program.name());
    assert!(lines.contains(&title.as_str()), "{printed}");
    assert!(lines[1].ends_with("; complete: counts are exact"), "{printed}");
    // Of 5, -1, -7, 12, 0 three are not negative; the last of five rounds does not
    // branch back.
    let wanted = "\
count   taken  mispredict  p50  p90  IPC        address  instruction
    5                                     ┌───>  4eda10  mov    edi,DWORD PTR [rbx]
    5                                     │      4eda12  test   edi,edi
    5  60.00%           -    -    -    -  │ ┌──  4eda14  jns    0x4eda1e
    2                                     │ │    4eda16  mov    eax,edi
    2                                     │ │    4eda18  shl    eax,0x7
    2                                     │ │    4eda1b  lea    edi,[rax+rdi*8]
    5                   -    -    -    -  │ └─>  4eda1e  call   0x4edb26  <leaf>
    5                                     │      4eda23  add    rbx,0x4
    5                                     │      4eda27  mov    DWORD PTR [rbx-0x4],eax
    5                                     │      4eda2a  cmp    rbx,rbp
    5  80.00%           -    -    -    -  └────  4eda2d  jne    0x4eda10";
    assert_eq!(lines[5..].join("\n"), wanted);
    let att = done(&["annotate", "loop", "--syntax", "att", "-i", &recorded.file]);
    assert!(att.contains("4eda1b  lea    (%rax,%rdi,8),%edi\n"), "{att}");
    // An address inside is equivalent; the hottest function needs no name.
    assert_eq!(done(&["annotate", "0x4eda1b", "-i", &recorded.file]), printed);
    assert_eq!(done(&["annotate", "-i", &recorded.file]), printed);
    // Two recordings count together.
    let twice = ["annotate", "loop", "-i", &recorded.file, "-i", &recorded.file];
    assert!(done(&twice).contains("\n   10  60.00%           -"), "{}", done(&twice));

    let hottest = done(&["annotate", "loop", "--hottest", "-i", &recorded.file]);
    let titles: Vec<&str> = hottest.lines().filter(|line| line.starts_with("block ")).collect();
    let wanted = [
        "block 1, +0x0: 5 times",
        "block 2, +0xe: 5 times",
        "block 3, +0x13: 5 times",
        "block 4, +0x6: 2 times",
    ];
    assert_eq!(titles, wanted);
    assert!(hottest.contains("jne    0x4eda10  <+0x0>\n"), "{hottest}");
    // No colour in a pipe.
    assert!(!printed.contains('\u{1b}'));
}

#[test]
fn source_lines_are_interleaved() {
    let Some(program) = annotated() else { return };
    let Some(recorded) = record(program.name(), &[]) else { return };
    let printed = done(&["annotate", "mix", "--source", "-i", &recorded.file]);
    let line = "annotated.c:7  __attribute__((noinline)) static u32 mix(u32 a, u32 b)";
    assert!(printed.contains(line), "{printed}");
    let rows = json(&["mix", "-i", &recorded.file]);
    for insn in of_kind(&rows, "instruction") {
        assert!(insn["source_file"].as_str().unwrap().ends_with("tests/programs/annotated.c"));
        assert_eq!(insn["source_line"], 7);
    }
    let of_line = done(&["annotate", "annotated.c:7", "-i", &recorded.file]);
    assert_eq!(of_line, done(&["annotate", "mix", "-i", &recorded.file]));
}

/// More branches between two reads than the ring holds.
#[test]
fn samples_have_confidence_intervals() {
    let Some(program) = build("outcomes.S", BARE) else { return };
    let Some(recorded) = record(program.name(), &["-c", "75"]) else { return };
    let rows = json(&["top..f0", "-i", &recorded.file]);
    assert_eq!(rows[0]["exact"], false);
    let bit = of_kind(&rows, "instruction")
        .into_iter()
        .find(|insn| hex(&insn["address"]) == program.at("b_bit"))
        .unwrap();
    let number = |key: &str| bit["branch"][key].as_f64().unwrap();
    let (low, share, high) = (number("taken_low"), number("taken_share"), number("taken_high"));
    // 506 of 1000, by the generator.
    assert!(low < share && share < high && low <= 0.506 && 0.506 <= high, "{bit}");
    assert!(bit["count"].as_u64().unwrap() < 1000);
    let printed = done(&["annotate", "top..f0", "-i", &recorded.file]);
    assert!(printed.contains("counts are of the sample; "), "{printed}");
    let line = printed.lines().find(|line| line.contains("  je ")).unwrap();
    assert!(line.contains(&format!("{:.1}% ±", share * 100.0)), "{line}");
    // Unknown is not zero.
    let never = printed.lines().find(|line| line.contains("syscall")).unwrap();
    assert_eq!(never.split_whitespace().next(), Some("-"));
}

fn cc(folder: &Path, name: &str, flags: &[&str], sources: &[(&str, &str)]) -> Option<PathBuf> {
    let program = folder.join(name);
    let mut cc = tool("cc");
    cc.args(flags).arg("-o").arg(&program);
    for (file, code) in sources {
        let path = folder.join(file);
        std::fs::write(&path, code).unwrap();
        cc.arg(path);
    }
    match cc.status() {
        Ok(status) if status.success() => Some(program),
        Ok(status) => panic!("cc: {status}"),
        Err(_) => {
            skipped("no C compiler (cc)");
            None
        }
    }
}

const START: &str = "__asm__(\".globl _start\\n_start: call run\\nmov $60, %eax\\n\
                     xor %edi, %edi\\nsyscall\\n\");\n";

#[test]
fn names_that_mean_no_code_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let inlined = format!(
        "{START}static inline __attribute__((always_inline)) int sq(int a) {{ return a * a + 1; }}\n\
         __attribute__((noipa)) int f(int n) {{ int s = 0; while (n--) s += sq(n) ^ s; return s; }}\n\
         volatile int sink;\nvoid run(void) {{ sink = f(100); }}\n"
    );
    let flags = [BARE, &["-O1", "-g", "-fno-stack-protector", "-Wl,--build-id"]].concat();
    let Some(program) = cc(folder.path(), "program", &flags, &[("inlined.c", &inlined)]) else {
        return;
    };
    let name = program.to_str().unwrap();
    let Some(recorded) = record(name, &[]) else { return };
    let input = ["-i", &recorded.file];
    let said = |symbol: &str| refused(&[&[symbol], &input[..]].concat());
    assert_eq!(said("sq"), "lbr: sq exists only inlined into f; annotate that\n");
    assert_eq!(said("nowhere"), "lbr: no function nowhere in the files of this recording\n");
    assert_eq!(said("0x10"), "lbr: 0x10 is outside of all files that the recording mapped\n");
    assert!(said("f..run..f").starts_with("lbr: "));
    assert!(said("f..f").contains("f .. f is not a range"), "{}", said("f..f"));

    // Replaced by another build.
    let other = inlined.replace("a * a + 1", "a * a * a + 7");
    cc(folder.path(), "program", &flags, &[("inlined.c", &other)]).unwrap();
    let replaced = said("f");
    let wanted = "no function f in the files of this recording (";
    assert!(replaced.contains(wanted) && replaced.contains("replaced"), "{replaced}");
    std::fs::remove_file(&program).unwrap();
    assert!(said("f").contains("is not there"), "{}", said("f"));
    drop(recorded.folder);
}

#[test]
fn stripped_code_is_shown_by_range() {
    let folder = tempfile::tempdir().unwrap();
    let code = format!("{START}void run(void) {{ for (volatile int i = 0; i < 9; i++); }}\n");
    let flags = [BARE, &["-O1", "-s", "-fno-stack-protector"]].concat();
    let Some(program) = cc(folder.path(), "program", &flags, &[("a.c", &code)]) else { return };
    let name = program.to_str().unwrap();
    let Some(recorded) = record(name, &[]) else { return };
    let said = refused(&["run", "-i", &recorded.file]);
    let wanted = format!("no function run in the files of this recording ({name} is stripped)");
    assert!(said.contains(&wanted), "{said}");
    assert!(refused(&["-i", &recorded.file]).contains(&format!("({name} is stripped)")));
    // The block that ran most often, by its address and by a range.
    let out = done(&["report", "--view", "blocks", "--json", "-i", &recorded.file]);
    let block: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let entry = block["entry"].as_str().unwrap();
    let end = format!("{:#x}", hex(&block["exit"]) + 2);
    let rows = json(&[&format!("{entry}..{end}"), "-i", &recorded.file]);
    // As `report` prints an address without a symbol, and as an address: the blocks over it.
    let table = done(&["report", "--view", "blocks", "-i", &recorded.file]);
    let printed = table.split_whitespace().find(|word| word.starts_with("program+0x")).unwrap();
    let counts = |rows: &[Value]| -> BTreeMap<u64, u64> {
        let count = |insn: &Value| (hex(&insn["address"]), insn["count"].as_u64().unwrap());
        of_kind(rows, "instruction").into_iter().map(count).collect()
    };
    for place in [entry, printed] {
        let around = counts(&json(&[place, "-i", &recorded.file]));
        let inside = around.range(hex(&block["entry"])..=hex(&block["exit"]));
        assert_eq!(inside.map(|(at, n)| (*at, *n)).collect::<BTreeMap<_, _>>(), counts(&rows));
    }
    let said = refused(&["program+0x1", "-i", &recorded.file]);
    assert!(said.contains("(it is stripped): give a range, such as 0x"), "{said}");
    // The first round enters the loop from above.
    let counts: Vec<u64> =
        of_kind(&rows, "instruction").iter().map(|insn| insn["count"].as_u64().unwrap()).collect();
    let least = block["count"].as_u64().unwrap();
    assert!(counts.len() > 2 && counts.iter().all(|n| *n >= least && *n <= 9), "{counts:?}");
}

/// Two functions with one name, as `static` makes possible.
#[test]
fn of_several_functions_with_one_name_the_executed_one_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = |outer: &str, value: u32| {
        format!(
            "__attribute__((noinline)) static int twin(int n) {{ int s = {value}; \
             while (n--) s ^= s << 1; return s; }}\nint {outer}(int n) {{ return twin(n); }}\n"
        )
    };
    let flags = [BARE, &["-O1", "-fno-stack-protector"]].concat();
    for both in [false, true] {
        let calls = if both { "left(9); right(9);" } else { "right(9);" };
        let main = format!("{START}int left(int), right(int);\nvoid run(void) {{ {calls} }}\n");
        let sources =
            [("left.c", file("left", 3)), ("right.c", file("right", 5)), ("main.c", main)];
        let sources: Vec<(&str, &str)> = sources.iter().map(|(n, c)| (*n, c.as_str())).collect();
        let Some(program) = cc(folder.path(), "program", &flags, &sources) else { return };
        let Some(recorded) = record(program.to_str().unwrap(), &[]) else { return };
        if both {
            let said = refused(&["twin", "-i", &recorded.file]);
            let (shares, of) = (said.matches("% of executed code").count(), program.display());
            assert!(said.starts_with("lbr: twin may mean 0x") && said.contains(" or 0x"), "{said}");
            assert!(shares == 2 && said.contains(&format!("), in {of}")), "{said}");
            continue;
        }
        let rows = json(&["twin", "-i", &recorded.file]);
        let five = "mov    eax,0x5";
        assert!(done(&["annotate", "twin", "-i", &recorded.file]).contains(five));
        assert!(rows[0]["executed"].as_u64().unwrap() > 9);
    }
}

/// Code needs its file, and the kernel's is never shown.
#[test]
fn recordings_without_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stacks.txt");
    let (user, kernel) = ("0x30/0x10/P/-/-/7 ", "0xffffffff81000030/0xffffffff81000010/P/-/-/7 ");
    std::fs::write(&file, format!(" {user}{user}\n {kernel}{kernel}\n")).unwrap();
    let file = file.to_str().unwrap();
    let said = refused(&["-i", file]);
    assert_eq!(
        said,
        "lbr: no function of this recording has a name and code (the recording has no mapping \
         events; perf script --show-mmap-events prints them)\n"
    );
    let said = refused(&["0x30", "-i", file]);
    assert!(said.contains("code bytes of 0x30 are not available: it is in no file"), "{said}");
    let said = refused(&["0xffffffff81000020", "-i", file]);
    assert!(said.contains("it is in the kernel, which changes its code"), "{said}");
}

/// The page for the browser contains the same as the text, and loads nothing from elsewhere.
#[test]
fn html_is_one_page() {
    let Some(program) = build("outcomes.S", BARE) else { return };
    let Some(recorded) = record(program.name(), &[]) else { return };
    let page = recorded.folder.path().join("page.html");
    let args = ["annotate", "top..f0", "--html", page.to_str().unwrap(), "-i", &recorded.file];
    assert_eq!(done(&args), "");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.matches("<tr").count() > 30);
    for word in ["QWORD PTR [r8+rdx*8]", "case1 27.20%", "50.60%", "b_switch:", "not measured"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
    // Without a name, every hot function; here each label is one.
    let pages = recorded.folder.path().join("pages.html");
    assert_eq!(done(&["annotate", "--html", pages.to_str().unwrap(), "-i", &recorded.file]), "");
    let pages = std::fs::read_to_string(pages).unwrap();
    assert_eq!(pages.matches("<details").count(), 10);
    assert!(pages.find("<summary>top ").unwrap() < pages.find("<summary>back ").unwrap());
    let both = ["annotate", "--html", "x", "--json", "-i", &recorded.file];
    assert_eq!(lbr(&both).status.code(), Some(2));
}
