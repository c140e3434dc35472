//! `lbr report --html`: the contents of the page, and its layout in a browser.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use profile::note::Source;
use profile::perf_data::Meta;
use serde_json::Value;

use crate::drawn::{Mapped, humps, meta, record};
use crate::support::lbr::{lbr_in, printed};
use crate::support::skip::{skipped, tool};

fn report(dir: &Path, input: &str, args: &[&str]) -> Output {
    lbr_in(dir, &[&["report", "-i", input, "--html", "page.html"], args].concat())
}

fn page(dir: &Path, input: &str, args: &[&str]) -> String {
    let out = report(dir, input, args);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stdout.is_empty());
    std::fs::read_to_string(dir.join("page.html")).unwrap()
}

const EVIL: &str = "<script>alert(1)</script>";
const CODE: u64 = 0x40_1000;

/// A recording of a function whose name is markup, and so is its file's name.
fn evil() -> Option<tempfile::TempDir> {
    described(meta(Source::Software))
}

fn described(meta: Meta) -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("evil.S");
    let text = format!(
        ".globl _start\n.globl \"{EVIL}\"\n.text\n\"{EVIL}\":\n.rept 64\nnop\n.endr\nret\n_start: ret\n.section .note.GNU-stack,\"\",@progbits\n"
    );
    std::fs::write(&source, text).unwrap();
    let program = dir.path().join("<i>program");
    let built = tool("cc")
        .args(["-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x401000", "-o"])
        .args([&program, &source])
        .output();
    match built {
        Ok(out) if out.status.success() => {}
        _ => {
            skipped("no C compiler (cc) that takes a quoted symbol");
            return None;
        }
    }
    let bytes = std::fs::read(&program).unwrap();
    let object = object::File::parse(&*bytes).unwrap();
    let segment = object::Object::segments(&object)
        .find(|segment| object::ObjectSegment::address(segment) == CODE)
        .unwrap();
    let pgoff = object::ObjectSegment::file_range(&segment).0;
    let mapped: Mapped<'_> = (program.to_str().unwrap(), CODE, pgoff);
    let mut runs = humps(CODE, CODE + 0x40, 0);
    runs.extend((0..99).map(|_| (CODE + 0x10, CODE + 0x20, 10)));
    record(&dir.path().join("<b>&.data"), meta, Some(mapped), &runs);
    Some(dir)
}

/// Metadata of a recording has no separate line.
#[test]
fn foreign_line_ends_are_escaped() {
    let evil = || "said\nforged\u{2028}\u{1b}".to_owned();
    let said = Meta {
        hostname: Some(evil()),
        version: evil(),
        cpudesc: Some(evil()),
        event: evil(),
        cmdline: vec![evil(), evil()],
        ..meta(Source::Software)
    };
    let Some(dir) = described(said) else { return };
    let page = page(dir.path(), "<b>&.data", &[]);
    assert!(page.matches(r"said\nforged\u{2028}\x1b").count() >= 5, "{page}");
    assert!(!page.lines().any(|line| line.starts_with("forged")), "{page}");
}

#[test]
fn the_page_equals_the_views() {
    let Some(dir) = evil() else { return };
    let page = page(dir.path(), "<b>&.data", &[]);
    // Text from a recording is never markup.
    assert!(!page.contains(EVIL) && !page.contains("<i>program") && !page.contains("<b>"));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;+0x40"));
    assert!(page.contains("Branches of &lt;b&gt;&amp;.data"));
    assert!(page.contains("lbr &lt;b&gt;&amp;amp;"), "the command line");
    for words in [
        "Verdict: ",
        "modelled by a software LBR, not measured",
        "cycles put in by hand",
        "0 stacks",
        "Hot branches",
        "Mispredicts",
        "Outcomes",
        "Distributions of cycles",
        "Annotated functions",
        "nop",
        "n 740, saturated 0, dropped 0, modes 12, 40",
        ">mode 12<",
        ">mode 40<",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // Nothing is loaded: the only URL is the name of SVG.
    let addresses: Vec<&str> =
        page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    let outside = addresses.iter().filter(|address| {
        !address.starts_with("http://www.w3.org/2000/svg") && !address.starts_with("http-equiv")
    });
    assert_eq!(outside.count(), 0, "{addresses:?}");
    assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("url("));
    // The same numbers as `lbr report`: 839 runs, and one more entry per stack.
    assert!(page.contains(">740</td>") && page.contains(">99</td>"));
}

/// Modelled cycles are marked as not measured, once, both for a software LBR and for the registers
/// of an emulated CPU.
#[test]
fn modelled_is_printed_once() {
    let run =
        |dir: &Path, args: &[&str]| printed(&lbr_in(dir, &[args, &["-i", "<b>&.data"]].concat()));
    let software = "software LBR (06_5E), not measured";
    let emulated = "Skylake, emulated CPU (TCG), cycles and predictions modelled, not measured";
    for (cpu, source, origin) in [
        (software, Source::Software, "modelled by a software LBR, not measured"),
        (emulated, Source::Hardware, "modelled, not measured: read from the registers of an"),
    ] {
        let Some(dir) = described(Meta { cpudesc: Some(cpu.to_owned()), ..meta(source) }) else {
            return;
        };
        let block = format!("{CODE:#x}");
        for command in [
            &["annotate"][..],
            &["hist"],
            &["hist", "--block", &block],
            &["report"],
            &["report", "--view", "blocks"],
            &["report", "--view", "loops"],
        ] {
            let text = run(dir.path(), command);
            assert_eq!(text.matches("not measured").count(), 1, "{command:?}: {text}");
        }
        for (command, kind) in [
            (&["hist", "--block", &block, "--json"][..], "hist"),
            (&["annotate", "--json"], "block"),
        ] {
            let text = run(dir.path(), command);
            let mut rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let row = rows.find(|row| row["view"] == kind || row["kind"] == kind).unwrap();
            assert_eq!(row["modelled"], true, "{row}");
        }
        let page = page(dir.path(), "<b>&.data", &[]);
        assert!(
            page.contains(origin) && !page.contains("measured: read from the registers of a C")
        );
    }
}

#[test]
fn rows_are_limited_and_the_rest_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let runs: Vec<_> = (0..400u64).map(|at| (CODE + at, CODE + 0x800 + at, 9)).collect();
    record(&dir.path().join("perf.data"), meta(Source::Unsaid), None, &runs);
    let rows = |page: &str| page.split("<tbody>").nth(1).unwrap().matches("</tr>").count();
    let short = page(dir.path(), "perf.data", &["--limit", "10"]);
    assert_eq!(rows(short.split("</tbody>").next().unwrap()), 10);
    assert!(short.contains("The first 10 are shown; 490 more branches are not on this page"));
    assert!(short.contains("as its recorder says"), "neither modelled nor measured by us");
    let all = page(dir.path(), "perf.data", &["--limit", "0"]);
    assert!(rows(all.split("</tbody>").next().unwrap()) == 500 && !all.contains("more branches"));
    assert!(all.contains("The 12 blocks with most cycle counts are drawn; 388 more have counts"));
}

#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join("perf.data"), meta(Source::Unsaid), None, &[(CODE, CODE + 4, 9)]);
    for args in [&["--json"][..], &["--view", "blocks"], &["--sort", "count"]] {
        assert_eq!(report(dir.path(), "perf.data", args).status.code(), Some(2), "{args:?}");
    }
}

/// Chromium, started without network access.
pub(crate) struct Browser(PathBuf);

impl Browser {
    /// `None`, with a message, if it is missing.
    pub(crate) fn find() -> Option<Browser> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let found = std::env::split_paths(&path)
            .flat_map(|dir| names.map(|name| dir.join(name)))
            .find(|program| program.is_file());
        if found.is_none() {
            skipped("no chromium to open the page");
        }
        found.map(Browser)
    }

    fn open(&self, page: &Path, size: (u32, u32), dark: bool, args: &[&str]) -> Output {
        let profile = tempfile::tempdir().unwrap();
        let scheme = if dark { 0 } else { 1 };
        Command::new(&self.0)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .arg(format!("--window-size={},{}", size.0, size.1))
            .args(args)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap()
    }

    /// A screenshot of the page: its pixels, RGB or RGBA.
    pub(crate) fn picture(&self, page: &Path, size: (u32, u32), dark: bool) -> Vec<[u8; 3]> {
        let shot = page.with_extension("png");
        let out = self.open(page, size, dark, &[&format!("--screenshot={}", shot.display())]);
        assert_eq!(console(&out), "", "no message of the console");
        let file = std::io::BufReader::new(std::fs::File::open(&shot).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), size);
        let bytes = frame.color_type.samples();
        pixels.chunks_exact(bytes).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
    }

    /// The result of a script that is added to the page.
    pub(crate) fn run(&self, page: &Path, size: (u32, u32), script: &str) -> Value {
        let text = std::fs::read_to_string(page).unwrap();
        let added = format!(
            "<script>document.body.dataset.result = JSON.stringify((() => {{ {script} }})());</script></body>"
        );
        let copy = page.with_file_name("copy.html");
        std::fs::write(&copy, text.replacen("</body>", &added, 1)).unwrap();
        let out = self.open(&copy, size, false, &["--dump-dom"]);
        assert_eq!(console(&out), "", "no message of the console");
        let dom = String::from_utf8(out.stdout).unwrap();
        let result = dom.split("data-result=\"").nth(1).unwrap().split('"').next().unwrap();
        serde_json::from_str(&result.replace("&quot;", "\"")).unwrap()
    }
}

/// Messages on the page's console.
fn console(out: &Output) -> String {
    let said = String::from_utf8_lossy(&out.stderr);
    let lines = said.lines().filter(|line| line.contains("CONSOLE"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_browser_renders_it() {
    let Some(browser) = Browser::find() else { return };
    let Some(dir) = evil() else { return };
    page(dir.path(), "<b>&.data", &[]);
    // A name that needs no escaping in a URL.
    let page = dir.path().join("page.html");

    let broken = dir.path().join("broken.html");
    std::fs::write(&broken, "<script>nobody()</script>").unwrap();
    let out = browser.open(&broken, (400, 300), false, &["--dump-dom"]);
    if console(&out).is_empty() {
        skipped("this chromium does not show its console");
        return;
    }

    for (size, dark) in [((1400, 1000), false), ((1400, 1000), true), ((400, 1000), false)] {
        let pixels = browser.picture(&page, size, dark);
        let corner = pixels[0];
        let paper = if dark { [0x0D, 0x11, 0x17] } else { [0xFF, 0xFF, 0xFF] };
        assert_eq!(corner, paper, "{size:?}");
        let drawn = pixels.iter().filter(|pixel| **pixel != corner).count();
        assert!(drawn > pixels.len() / 50, "{size:?}: {drawn} of {} are not paper", pixels.len());
    }

    let result = browser.run(
        &page,
        (1400, 1000),
        "const table = document.querySelector('#hot table');
         const heads = [...table.tHead.rows[0].cells];
         const count = heads.findIndex(head => head.textContent === 'count');
         const column = () => [...table.tBodies[0].rows].map(row => row.cells[count].textContent);
         const seen = { before: heads[count].getAttribute('aria-sort') };
         heads[count].querySelector('button').click();
         seen.first = [heads[count].getAttribute('aria-sort'), column()];
         heads[count].querySelector('button').click();
         seen.second = [heads[count].getAttribute('aria-sort'), column()];
         heads[0].querySelector('button').click();
         seen.other = heads[count].getAttribute('aria-sort');
         const search = document.querySelector('#search');
         const shown = () => [...table.tBodies[0].rows].filter(row => !row.hidden).length;
         const all = shown();
         search.value = '+0x20 ALERT';
         search.dispatchEvent(new Event('input'));
         seen.search = [all, shown(), document.querySelector('output').textContent];
         document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }));
         seen.focus = document.activeElement.id;
         search.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
         seen.cleared = [search.value, shown()];
         seen.scripts = document.scripts.length;
         return seen;",
    );
    let number = |text: &Value| text.as_str().unwrap().replace(',', "").parse::<u64>().unwrap();
    let numbers = |of: &Value| of[1].as_array().unwrap().iter().map(number).collect::<Vec<_>>();
    assert!(result["before"].is_null());
    assert_eq!(result["first"][0], "descending");
    let falling = numbers(&result["first"]);
    assert!(falling.len() > 2 && falling.is_sorted_by(|a, b| a >= b), "{falling:?}");
    assert_eq!(result["second"][0], "ascending");
    assert!(numbers(&result["second"]).is_sorted(), "{result}");
    assert!(result["other"].is_null());
    let (all, shown) = (&result["search"][0], &result["search"][1]);
    assert!(shown.as_u64() > Some(0) && shown.as_u64() < all.as_u64(), "{result}");
    assert_eq!((result["focus"].as_str(), &result["cleared"][1]), (Some("search"), all));
    assert_eq!(result["scripts"], 2, "ours and the test's: none came out of the recording");

    // A location links to its instruction, a block to its cycle distribution.
    let links = browser.run(
        &page,
        (1400, 1000),
        "const to = a => document.querySelector(a.getAttribute('href'));
         const places = [...document.querySelectorAll('#hot td a')];
         const drawn = [...document.querySelectorAll('#blocks td a')]
             .filter(a => a.textContent === 'distribution');
         return [places.map(a => [a.textContent, [...to(a).cells].map(cell => cell.textContent)]),
             drawn.map(a => [a.closest('tr').textContent, to(a).querySelector('figcaption').textContent])];",
    );
    let of = |at: usize| links[at].as_array().unwrap();
    let offset = |text: &str| {
        let digits = text.split("+0x").nth(1).unwrap().split(' ').next().unwrap();
        u64::from_str_radix(digits, 16).unwrap()
    };
    assert!(of(0).len() >= 4, "{links}");
    for link in of(0) {
        let address = format!("{:x}", CODE + offset(link[0].as_str().unwrap()));
        let cells = link[1].as_array().unwrap();
        assert!(cells.iter().any(|cell| *cell == *address), "{link}");
    }
    assert!(!of(1).is_empty(), "{links}");
    for link in of(1) {
        let (caption, row) = (link[1].as_str().unwrap(), link[0].as_str().unwrap());
        let named = caption.split(" .. ").all(|end| row.contains(end));
        assert!(named, "{link}");
    }

    // Wide: no table hides a column.
    let hidden = browser.run(
        &page,
        (1400, 1000),
        "return [...document.querySelectorAll('section .scroll')]
             .filter(box => box.querySelector('.sortable') && box.scrollWidth > box.clientWidth)
             .map(box => box.getAttribute('aria-label'));",
    );
    assert_eq!(hidden.as_array().map(Vec::len), Some(0), "{hidden}");

    // Narrow: the page itself does not scroll sideways, tables do.
    let narrow = browser.run(
        &page,
        (360, 800),
        "const box = document.querySelector('#hot .scroll');
         return [document.documentElement.scrollWidth, window.innerWidth, box.scrollWidth > box.clientWidth];",
    );
    let width = |at: usize| narrow[at].as_u64().unwrap();
    assert!(width(0) <= width(1) && narrow[2] == true, "{narrow}");
}

/// `-` is standard output, as it is standard input for `-i`.
#[test]
fn a_page_to_standard_output() {
    let Some(dir) = evil() else { return };
    for args in [&["report"][..], &["annotate"]] {
        let out = lbr_in(dir.path(), &[args, &["-i", "<b>&.data", "--html", "-"]].concat());
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(0), "{said}");
        assert!(!said.contains("report to"), "{said}");
        assert!(out.stdout.starts_with(b"<!DOCTYPE html>"), "{args:?}");
        assert!(!dir.path().join("-").exists());
        let nowhere = ["-i", "<b>&.data", "--html", "no/such/page.html"];
        let full = lbr_in(dir.path(), &[args, &nowhere].concat());
        assert_eq!(full.status.code(), Some(1));
        let said = String::from_utf8(full.stderr).unwrap();
        assert!(said.starts_with("lbr: no/such/page.html cannot be written: "), "{said}");
    }
}
