//! Other readers understand the files of the writer.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Stdio;

use lbr_msr::record::{BranchEntry, Comm, Event, Label, Mmap, Sink};
use profile::perf_data::{Meta, WriteError, Writer, Written};
use profile::{Item, Recording};

use crate::recorded::{BASE, each_stack, entry, events, exact, map, meta, sample, stream, write};
use crate::support::itself::with_symbols;
use crate::support::skip::{skipped, tool};

/// Runs perf; `None`, with a message, if it is missing.
fn perf(args: &[&str], file: &Path) -> Option<String> {
    let out = tool("perf").args(args).arg("-i").arg(file).stdin(Stdio::null()).output();
    match out {
        Ok(out) => {
            let err = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "perf {args:?}: {} {err}", out.status);
            Some(String::from_utf8(out.stdout).unwrap())
        }
        Err(_) => {
            skipped("no perf here");
            None
        }
    }
}

/// Lines without the spec field that only newer versions of perf print, with single spaces.
fn brstack_lines(text: &str) -> Vec<Vec<String>> {
    let entry = |word: &str| word.split('/').take(7).collect::<Vec<_>>().join("/");
    text.lines().map(|line| line.split_whitespace().map(entry).collect()).collect()
}

fn expected_lines() -> Vec<Vec<String>> {
    [
        "0x555555554010/0x555555554020/P/-/-/0/COND 0x555555554010/0x555555554020/M/-/-/0/FAULT_DATA 0x555555554030/0xffffffff80001000/M/X/A/65535/RET",
        "0x555555554040/0x555555554050/-/-/-/0/ 0x555555554040/0x555555554050/-/-/-/0/",
        "",
    ]
    .iter()
    .map(|line| line.split_whitespace().map(str::to_owned).collect())
    .collect()
}

#[test]
fn perf_script_reads_the_same_branches() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    write(&file, meta(), &events());
    let Some(text) = perf(&["script", "-F", "brstack"], &file) else { return };
    assert_eq!(brstack_lines(&text), expected_lines());
    let head = perf(&["script", "-F", "comm,pid,tid,cpu,time,event,ip,period"], &file).unwrap();
    let first: Vec<&str> = head.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        first,
        ["prog", "100/101", "[001]", "0.000002:", "3", "branches:u:", "555555554020"]
    );
}

#[test]
fn perf_script_reads_the_pipe_form() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pipe");
    std::fs::write(&file, stream(meta(), &events())).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let out = tool("perf").args(["script", "-F", "brstack", "-i", "-"]).stdin(input).output();
    let Ok(out) = out else { return skipped("no perf here") };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // From a pipe, perf 6.1 prints address and symbol whatever the fields.
    let mut lines = brstack_lines(&String::from_utf8(out.stdout).unwrap());
    lines.iter_mut().for_each(|words| words.retain(|word| word.contains('/')));
    assert_eq!(lines, expected_lines());
}

#[test]
fn perf_shows_the_header_and_the_mappings() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    write(&file, meta(), &events());
    let Some(header) = perf(&["report", "--header-only"], &file) else { return };
    for line in [
        "# hostname : box",
        "# os release : 6.1.0",
        "# perf version : lbr 0.1.0",
        "# arch : x86_64",
        "# nrcpus online : 2",
        "# nrcpus avail : 4",
        "# cpudesc : software LBR (06_5E), not measured",
        "# cpuid : GenuineIntel,6,94,3",
        "# contains samples with branch stack",
    ] {
        assert!(header.contains(line), "{line} is not in\n{header}");
    }
    assert!(header.contains("name = branches:u"), "{header}");
    assert!(header.contains("branch_sample_type = USER|ANY|TYPE_SAVE"), "{header}");
    let maps = perf(&["script", "--show-mmap-events", "-F", "pid,brstack"], &file).unwrap();
    let wanted = "[0x555555554000(0x2000) @ 0x1000 08:01 77 3]: r-xp /nowhere/prog";
    assert!(maps.contains(wanted), "{maps}");
    let lost = perf(&["report", "-D"], &file).unwrap();
    assert!(lost.contains("PERF_RECORD_LOST: id:16962: lost:7"), "{lost}");
}

/// Fields that the source lacks are marked as not recorded.
#[test]
fn unknown_fields_are_announced() {
    let mut unknowing = meta();
    unknowing.knowledge.mispredict = false;
    unknowing.knowledge.cycles = false;
    unknowing.types = false;
    let bytes = stream(unknowing, &events());
    let mut reader = Recording::from_stream(Box::new(std::io::Cursor::new(bytes))).unwrap();
    while reader.next_item().unwrap().is_some() {}
    // USER, ANY, NO_FLAGS, NO_CYCLES.
    let attr = &reader.events()[0];
    assert_eq!(attr.branch_sample_type, 1 | 8 | 0x4000 | 0x8000);
    assert_eq!((attr.sample_regs_user, attr.sample_regs_intr), (0, 0));
    // inherit, exclude_kernel, exclude_hv, mmap, comm, task, sample_id_all, mmap2, comm_exec of
    // `struct perf_event_attr`.
    let flags = [1, 5, 6, 8, 9, 13, 18, 23, 24].map(|bit| 1 << bit);
    assert_eq!(attr.flags, flags.into_iter().sum::<u64>());
}

/// `enum perf_branch_sample_type` (Linux `include/uapi/linux/perf_event.h`).
#[test]
fn filters_are_those_of_perf() {
    const USER: u64 = 1;
    for (filter, bits) in [
        ("any,u", USER | 1 << 3),
        ("any,k", 1 << 1 | 1 << 3),
        ("any,u,k", USER | 1 << 1 | 1 << 3),
        ("any_call,u", USER | 1 << 4),
        ("any_ret,u", USER | 1 << 5),
        ("ind_call,u", USER | 1 << 6),
        ("cond,u", USER | 1 << 10),
        ("stack,u", USER | 1 << 11),
        ("ind_jmp,u", USER | 1 << 12),
        ("call,u", USER | 1 << 13),
    ] {
        let recorded = Meta { filter: filter.parse().unwrap(), types: false, ..meta() };
        let bytes = stream(recorded, &events());
        let mut reader = Recording::from_stream(Box::new(std::io::Cursor::new(bytes))).unwrap();
        while reader.next_item().unwrap().is_some() {}
        assert_eq!(reader.events()[0].branch_sample_type, bits, "{filter}");
        let excludes_kernel = reader.events()[0].flags >> 5 & 1 == 1;
        assert_eq!(excludes_kernel, bits & 1 << 1 == 0, "{filter}");
    }
}

/// The kernel's names of threads have at most 15 bytes (TASK_COMM_LEN), and perf's reader no more.
#[test]
fn long_names_of_threads_are_cut() {
    let comm = "0123456789abcdef".to_owned();
    let event = Event::Comm(Comm { time: 1, pid: 7, tid: 8, comm, exec: false });
    let bytes = stream(meta(), &[event, sample(2, vec![entry(1, 2)], exact())]);
    let mut reader = Recording::from_stream(Box::new(std::io::Cursor::new(bytes))).unwrap();
    let Some(Item::Event(Event::Comm(found))) = reader.next_item().unwrap() else { panic!() };
    assert_eq!((found.pid, found.tid, &*found.comm), (7, 8, "0123456789abcde"));
}

/// Symbols through the mappings of this test program, which is a PIE.
#[test]
fn perf_report_counts_by_symbol() {
    use object::{Object, ObjectSegment};
    let Some(exe) = with_symbols() else { return };
    let exe = exe.to_str().unwrap();
    let bytes = std::fs::read(exe).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let main = profile::place::find_code(Path::new(exe), "main").unwrap();
    let segment = elf
        .segments()
        .find(|s| main >= s.address() && main < s.address() + s.size())
        .expect("main lies in a segment");
    // As the kernel maps it: whole pages.
    let page = |value: u64| value & !0xfff;
    let start = page(segment.address());
    let mapped = map(
        exe,
        BASE + start,
        page(segment.address() + segment.size() + 0xfff) - start,
        page(segment.file_range().0),
    );
    let hot = BranchEntry { mispredicted: Some(false), ..entry(BASE + main + 1, BASE + main) };
    let cold = BranchEntry { mispredicted: Some(true), ..entry(BASE + main + 2, 0x10) };
    let events = [
        mapped,
        sample(2000, vec![hot, hot, cold], exact()),
        sample(3000, vec![hot, cold], exact()),
    ];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    write(&file, meta(), &events);

    let mut recording = profile::Recording::open(&file).unwrap();
    let mut table = profile::HotTable::count(&mut recording, |_, _| {}).unwrap();
    let rows: Vec<_> =
        table.branches.iter().map(|b| (b.from - BASE - main, b.count, b.mispredicted)).collect();
    assert_eq!(rows, [(1, 3, Some(0)), (2, 2, Some(2))]);
    let place = table.branches[0].from_location;
    let named = table.maps.name(place).unwrap();
    assert_eq!((named.name.as_str(), named.offset), ("main", 1));

    let args = ["report", "--stdio", "-n", "--sort", "symbol_from,symbol_to", "-t", ";"];
    let Some(text) = perf(&args, &file) else { return };
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split(';').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert_eq!(rows[0][1], "3", "{text}");
    assert_eq!(&rows[0][2..4], ["[.] main", "[.] main"], "{text}");
    assert_eq!(rows[1][1], "2", "{text}");
}

/// A killed recorder leaves the pipe form, with everything written so far.
#[test]
fn a_dropped_writer_leaves_a_readable_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let mut writer = Writer::new(std::fs::File::create(&file).unwrap(), meta()).unwrap();
    for event in events() {
        writer.event(&event).unwrap();
    }
    drop(writer);
    let mut reader = Recording::open(&file).unwrap();
    let mut stacks = Vec::new();
    each_stack(&mut reader, |stack| stacks.push(stack.entries.len())).unwrap();
    assert_eq!(stacks, [3, 2, 0]);
    assert_eq!(reader.notes().cut_at, None);
    assert_eq!(
        reader.info().unwrap().cpudesc.as_deref(),
        Some("software LBR (06_5E), not measured")
    );
}

/// The output has the header and the metadata from the start, which the header of the seekable form
/// will overwrite in part.
#[test]
fn a_recording_starts_with_its_metadata() {
    let writer = Writer::new(Vec::new(), meta()).unwrap();
    assert_eq!(writer.output(), Some(&stream(meta(), &[])));
}

#[test]
fn totals_of_a_finished_file() {
    let mut file = std::io::Cursor::new(Vec::new());
    let mut writer = Writer::new(&mut file, meta()).unwrap();
    events().iter().for_each(|event| writer.event(event).unwrap());
    let totals = writer.finish_file().unwrap();
    let bytes = file.get_ref().len() as u64;
    assert_eq!(totals, Written { bytes, samples: 3, branches: 5 });
}

/// The seekable form has the bytes of the pipe form, except for the header.
#[test]
fn finishing_does_not_move_records() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    write(&file, meta(), &events());
    let mut finished = Vec::new();
    std::fs::File::open(&file).unwrap().read_to_end(&mut finished).unwrap();
    let pipe = stream(meta(), &events());
    let word = |at: usize| u64::from_le_bytes(finished[at..at + 8].try_into().unwrap());
    assert_eq!((word(8), word(16)), (104, 144));
    let (data_at, data_size) = (word(40) as usize, word(48) as usize);
    assert!(data_at >= 256 && data_at % 8 == 0);
    // The ids, between the header and the attribute.
    assert_eq!((word(104), word(24), word(240), word(248)), (0x4242, 112, 104, 8));
    assert_eq!(finished[data_at..data_at + data_size], pipe[data_at..data_at + data_size]);
}

/// Kind and `misc` of each record after the features.
fn kinds(bytes: &[u8]) -> Vec<(u32, u16)> {
    let (mut at, mut found) = (16, Vec::new());
    while at < bytes.len() {
        let half = |from: usize| u16::from_le_bytes([bytes[at + from], bytes[at + from + 1]]);
        found.push((u32::from(half(0)), half(4)));
        at += usize::from(half(6));
    }
    let is_head = |(kind, _): &&(u32, u16)| matches!(kind, 64 | 80);
    found.split_off(found.iter().take_while(is_head).count())
}

/// `perf_event.h`: PERF_RECORD_MISC_COMM_EXEC is bit 13, user mode is 2, and tasks and losses have
/// no bits. Build IDs with their length (bit 15) follow the compressed records.
#[test]
fn kinds_of_records() {
    let mut events = events();
    let comm = "other".to_owned();
    events.push(Event::Comm(Comm { time: 6000, pid: 7, tid: 7, comm, exec: false }));
    let (comm, mmap, fork, sample, lost, exit) =
        ((3, 1 << 13), (10, 2), (7, 0), (9, 2), (2, 0), (4, 0));
    let all = [comm, mmap, fork, sample, sample, sample, lost, lost, exit, (3, 0)];
    assert_eq!(kinds(&stream(meta(), &events)), all);
    if let Event::Mmap(map) = &mut events[1] {
        map.build_id = Some(vec![7; 20]);
    }
    let mut packed = kinds(&stream(Meta { compression: Some(1), ..meta() }, &events));
    packed.dedup();
    assert_eq!(packed, [(81, 0), (67, 1 << 15 | 2)]);
}

/// A build ID record (`perf.data-file-format.txt`): header, process, 24 bytes of ID, and the path,
/// which perf pads with at least one NUL to a multiple of 64. Records end at multiples of 8.
#[test]
fn paths_of_build_ids_are_padded() {
    for (len, padded) in [(13, 64), (63, 64), (64, 128)] {
        let mut path = "/".repeat(len);
        let mut events = events();
        if let Event::Mmap(map) = &mut events[1] {
            map.build_id = Some(vec![7; 20]);
            map.path.clone_from(&path);
        }
        let bytes = stream(Meta { compression: Some(1), ..meta() }, &events);
        let record = &bytes[bytes.len() - (8 + 4 + 24 + padded + 4)..];
        assert_eq!((record[0], record[6], record[7]), (67, 40 + padded as u8, 0));
        path.extend(std::iter::repeat_n('\0', padded + 4 - len));
        assert_eq!(record[36..], *path.as_bytes());
    }
}

/// Records have at most 65,535 bytes; the header strings of a command line are multiples of 64.
#[test]
fn a_command_line_longer_than_a_record_is_dropped() {
    for (blocks, is_kept) in [(1013, true), (1014, false)] {
        // With these, the record is padded.
        let mut cmdline = vec!["x".to_owned(); 9];
        cmdline.push("x".repeat(64 * blocks - 1));
        let bytes = stream(Meta { cmdline: cmdline.clone(), ..meta() }, &events());
        let mut reader = Recording::from_stream(Box::new(std::io::Cursor::new(bytes))).unwrap();
        let mut stacks = 0;
        each_stack(&mut reader, |_| stacks += 1).unwrap();
        let expected = if is_kept { cmdline } else { vec![] };
        assert_eq!((stacks, &reader.info().unwrap().cmdline), (3, &expected), "{blocks}");
    }
}

/// The build IDs of a file may be longer than a record.
#[test]
fn build_ids_of_many_files() {
    let mapped = |number: u64| {
        let path = format!("/nowhere/{number}");
        let build_id = Some(vec![7; 20]);
        Event::Mmap(Box::new(Mmap { path, build_id, addr: number << 12, ..Mmap::default() }))
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    write(&file, meta(), &(1..=700).map(mapped).collect::<Vec<_>>());
    assert_eq!(Recording::open(&file).unwrap().info().unwrap().build_ids.len(), 700);
}

/// A file that is full when its header is flushed.
#[derive(Default)]
struct Full {
    bytes: std::io::Cursor<Vec<u8>>,
    at_header: bool,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.at_header { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Seek for Full {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.at_header = true;
        self.bytes.seek(to)
    }
}

#[test]
fn an_error_of_the_last_flush_is_reported() {
    let writer = Writer::new(Full::default(), meta()).unwrap();
    assert!(matches!(writer.finish_file(), Err(WriteError::Io(_))));
}

#[test]
fn a_recording_names_its_machine() {
    let uname = |option| {
        let out = tool("uname").arg(option).output().unwrap();
        Some(String::from_utf8(out.stdout).unwrap().trim().to_owned())
    };
    let meta = Meta::of_this_machine();
    let found = (meta.hostname.clone(), meta.osrelease.clone());
    assert_eq!(found, (uname("-n"), uname("-r")));
    // Recorded by a software LBR, which knows the types of branches, but not their predictions,
    // cycles and registers: USER, ANY, NO_FLAGS, NO_CYCLES, TYPE_SAVE.
    let bytes = stream(meta, &[]);
    let mut reader = Recording::from_stream(Box::new(std::io::Cursor::new(bytes))).unwrap();
    assert!(reader.next_item().unwrap().is_none());
    let attr = &reader.events()[0];
    assert_eq!(attr.branch_sample_type, 1 | 8 | 0x4000 | 0x8000 | 0x10000);
    assert_eq!(attr.sample_regs_user, 0);
}

/// Stacks whose label excludes them become losses, empty entries are dropped.
#[test]
fn uncountable_entries_are_not_written() {
    let torn = profile_integrity(Label::Torn);
    let events = [
        sample(2000, vec![entry(1, 2), entry(0, 0), entry(3, 4)], exact()),
        sample(3000, vec![entry(5, 6)], torn),
    ];
    let bytes = stream(meta(), &events);
    let mut reader = Recording::from_stream(Box::new(std::io::Cursor::new(bytes))).unwrap();
    let mut seen = Vec::new();
    while let Some(record) = reader.next_item().unwrap() {
        match record {
            Item::Stack(stack) => {
                seen.push(stack.entries.iter().map(|b| (b.from, b.to)).collect::<Vec<_>>());
            }
            Item::Event(Event::Lost(lost)) => {
                assert_eq!((lost.stacks, lost.label), (1, Some(Label::Torn)));
                seen.push(vec![]);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, [vec![(1, 2), (3, 4)], vec![]]);
}

fn profile_integrity(label: Label) -> lbr_msr::record::Integrity {
    lbr_msr::record::Integrity { label, ..exact() }
}

/// An independent reader (which does not support branch stacks) sees the same header, events and
/// records.
#[test]
fn linux_perf_data_reads_it() {
    use linux_perf_data::linux_perf_event_reader::EventRecord;
    use linux_perf_data::{PerfFileReader, PerfFileRecord};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let with_id = |event| match event {
        Event::Mmap(mut map) => {
            map.path = std::env::current_exe().unwrap().display().to_string();
            map.build_id = Some((1..=20).collect());
            Event::Mmap(map)
        }
        other => other,
    };
    let events: Vec<Event> = events().into_iter().map(with_id).collect();
    write(&path, meta(), &events);
    let file = std::fs::File::open(&path).unwrap();
    let PerfFileReader { mut perf_file, mut record_iter } =
        PerfFileReader::parse_file(file).unwrap();
    assert_eq!(perf_file.hostname().unwrap(), Some("box"));
    assert_eq!(perf_file.cpu_desc().unwrap(), Some("software LBR (06_5E), not measured"));
    assert_eq!(perf_file.cmdline().unwrap(), Some(vec!["lbr", "record", "a b"]));
    assert_eq!(perf_file.nr_cpus().unwrap().unwrap().nr_cpus_online, 2);
    let range = perf_file.sample_time_range().unwrap().unwrap();
    assert_eq!((range.first_sample_time, range.last_sample_time), (2000, 3500));
    let ids = perf_file.build_ids().unwrap();
    assert_eq!(ids.len(), 1);
    assert!(ids.values().all(|dso| dso.build_id == (1..=20).collect::<Vec<u8>>()));
    assert_eq!(perf_file.event_attributes()[0].name(), Some("branches:u"));
    let mut seen = Vec::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        let PerfFileRecord::EventRecord { record, .. } = record else { continue };
        seen.push(match record.parse().unwrap() {
            EventRecord::Sample(sample) => format!("sample {:?}", sample.timestamp),
            EventRecord::Mmap2(map) => format!("mmap {:#x}", map.address),
            EventRecord::Comm(comm) => format!("comm {}", comm.is_execve),
            EventRecord::Fork(_) => "fork".to_owned(),
            EventRecord::Exit(_) => "exit".to_owned(),
            EventRecord::Lost(lost) => format!("lost {}", lost.count),
            other => format!("{other:?}"),
        });
    }
    let expected = [
        "comm true",
        "mmap 0x555555554000",
        "fork",
        "sample Some(2000)",
        "sample Some(3000)",
        "sample Some(3500)",
        "lost 7",
        "lost 2",
        "exit",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_compressed_recording_is_the_same_to_every_reader() {
    let many: Vec<Event> = (0..200).flat_map(|_| events()).collect();
    let packed = || Meta { compression: Some(1), ..meta() };
    let dir = tempfile::tempdir().unwrap();
    let read = |file: &Path| {
        let mut reader = Recording::open(file).unwrap();
        let mut records = Vec::new();
        while let Some(record) = reader.next_item().unwrap() {
            records.push(format!("{record:?}"));
        }
        assert!(!records.is_empty());
        records
    };
    let (plain, small) = (stream(meta(), &many), stream(packed(), &many));
    assert!(small.len() * 4 < plain.len(), "{} of {}", small.len(), plain.len());
    let pipe = |name: &str, bytes: Vec<u8>| {
        let file = dir.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        file
    };
    assert_eq!(read(&pipe("small.pipe", small)), read(&pipe("plain.pipe", plain)));
    let file = |name: &str, meta| {
        let file = dir.path().join(name);
        write(&file, meta, &many);
        file
    };
    let (plain, small) = (file("plain", meta()), file("small", packed()));
    assert_eq!(read(&small), read(&plain));
    let Some(text) = perf(&["script", "-F", "brstack"], &small) else { return };
    assert_eq!(text, perf(&["script", "-F", "brstack"], &plain).unwrap());
    let header = perf(&["report", "--header-only"], &small).unwrap();
    assert!(header.contains("# compressed : Zstd, level = 1, ratio = "), "{header}");
}
