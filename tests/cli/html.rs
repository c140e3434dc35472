//! `lbr report --html`: the contents of the page, and its layout in a browser.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use profile::note::Source;
use profile::perf_data::Meta;
use serde_json::Value;

use crate::drawn::{Mapped, humps, meta, record};
use crate::support::lbr::{lbr_in, printed};
use crate::support::programs::{BARE, build};
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

/// Names of 3,000 letters, most of which markup writes as four or more.
#[test]
fn a_page_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let name = |at: usize| format!("f{at}{}", "<a>".repeat(1000));
    let entry = |at| format!(" {}+0x8/{}+0x0/M/-/-/3", name(at), name(at + 1));
    let text: String = (0..600).map(|at| entry(at) + &entry(at + 1) + "\n").collect();
    std::fs::write(dir.path().join("perf.txt"), text).unwrap();
    let page = page(dir.path(), "perf.txt", &[]);
    assert!(page.len() < 5_000_000, "{}", page.len());
    assert!(page.contains(" more branches are not on this page"));
}

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
        "Cycles of a block",
        "Who calls whom",
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
    assert!(all.contains("The 60 blocks with most cycle counts are drawn; 340 more have counts"));
}

#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join("perf.data"), meta(Source::Unsaid), None, &[(CODE, CODE + 4, 9)]);
    for args in [&["--json"][..], &["--view", "blocks"], &["--sort", "count"]] {
        assert_eq!(report(dir.path(), "perf.data", args).status.code(), Some(2), "{args:?}");
    }
}

/// The text of a page, its size, whether it is dark, and a script.
pub(crate) type Frame<'a> = (&'a str, (usize, usize), bool, &'a str);

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

    /// Opens pages in frames of one window, one below the other: their sizes, whether they are
    /// dark, and a script to run in each. Returns the results and the pixels.
    pub(crate) fn look(&self, frames: &[Frame<'_>]) -> Vec<(Value, Vec<[u8; 3]>)> {
        let dir = tempfile::tempdir().unwrap();
        let quoted = |text: &str| serde_json::to_string(text).unwrap().replace('<', "\\u003c");
        let mut window = "<body style=margin:0><script>const results = [];
            const frame = (at, page, width, height, dark, script) => {
                const frame = document.createElement('iframe');
                frame.style = `display:block;border:0;width:${width}px;height:${height}px;color-scheme:${dark ? 'dark' : 'light'}`;
                frame.srcdoc = page;
                frame.onload = () => {
                    const run = new Function('window', 'document', script);
                    results[at] = run(frame.contentWindow, frame.contentDocument) ?? null;
                    document.body.dataset.result = JSON.stringify(results);
                };
                document.body.append(frame);
            };"
            .to_owned();
        for (at, (page, (width, height), dark, script)) in frames.iter().enumerate() {
            let (page, script) = (quoted(page), quoted(script));
            window += &format!("frame({at},{page},{width},{height},{dark},{script});");
        }
        let (file, shot) = (dir.path().join("window.html"), dir.path().join("window.png"));
        // An error of ours, to see that this browser reports them.
        std::fs::write(&file, window + "</script><script>nobody()</script>").unwrap();
        let width = frames.iter().map(|frame| frame.1.0).max().unwrap();
        let height: usize = frames.iter().map(|frame| frame.1.1).sum();
        let out = Command::new(&self.0)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--enable-logging=stderr", "--dump-dom"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            .args([
                format!("--screenshot={}", shot.display()),
                format!("--window-size={width},{height}"),
            ])
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&out.stdout);
        let result =
            dom.split("data-result=\"").nth(1).unwrap_or("null").split('"').next().unwrap();
        let result = result.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">");
        let results: Vec<Value> = serde_json::from_str(&result.replace("&amp;", "&")).unwrap();
        let png = std::io::BufReader::new(std::fs::File::open(&shot).unwrap());
        let mut reader = png::Decoder::new(png).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let size = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((size.width as usize, size.height as usize), (width, height));
        let bytes = size.color_type.samples();
        let mut rows = pixels.chunks_exact(bytes * width);
        let seen = results.into_iter().zip(frames).map(|(result, (_, (width, height), ..))| {
            let rows =
                rows.by_ref().take(*height).flat_map(|row| row.chunks_exact(bytes).take(*width));
            (result, rows.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
        });
        let seen = seen.collect();
        let said = String::from_utf8_lossy(&out.stderr);
        let messages: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
        match messages.as_slice() {
            [] => skipped("this chromium does not show its console"),
            messages => {
                let others = messages.iter().filter(|line| !line.contains("nobody is not defined"));
                assert_eq!(others.count(), 0, "{messages:?}");
            }
        }
        seen
    }
}

/// Sorting, searching, walking, and what leads where.
const WALK: &str = r##"
const all = what => [...document.querySelectorAll(what)];
const press = (item, key) => item.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
const seen = { scripts: document.scripts.length };
// One table at a time, by arrows.
const tables = () => all('section.table').filter(item => !item.hidden).map(item => item.id);
const tabs = all('[role=tab]');
seen.tabs = [tables(), ...tabs.slice(0, 2).map(tab => (press(tab, 'ArrowRight'), tables()))];
// A block's cycles.
const figures = () => all('#cycles figure').filter(item => !item.hidden).map(item => item.dataset.block);
seen.figures = [figures()];
for (const link of all('tr[data-block] a')) { link.click(); seen.figures.push([link.closest('tr').dataset.block, ...figures()]); }
seen.boxes = all('.cfg a').map(box => { box.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }));
  return [box.querySelector('g').dataset.at, document.querySelector('.here[data-at]').dataset.at]; });
const table = document.querySelector('#hot table');
const heads = [...table.tHead.rows[0].cells];
const count = heads.findIndex(head => head.textContent === 'count');
const column = () => [...table.tBodies[0].rows].map(row => row.cells[count].textContent);
seen.before = heads[count].getAttribute('aria-sort');
heads[count].querySelector('button').click();
seen.first = [heads[count].getAttribute('aria-sort'), column()];
heads[count].querySelector('button').click();
seen.second = [heads[count].getAttribute('aria-sort'), column()];
heads[0].querySelector('button').click();
seen.other = heads[count].getAttribute('aria-sort');
const search = document.querySelector('#search');
const shown = () => [...table.tBodies[0].rows].filter(row => !row.hidden).length;
const rows = shown();
search.value = '+0x20 ALERT';
search.dispatchEvent(new Event('input'));
seen.search = [rows, shown(), tabs[0].textContent];
document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }));
seen.focus = document.activeElement.id;
press(search, 'Escape');
seen.cleared = [search.value, shown()];
const to = a => document.querySelector(a.getAttribute('href'));
seen.places = all('#hot td a').map(a => [a.textContent, [...to(a).cells].map(cell => cell.textContent)]);
seen.drawn = all('#blocks td a').filter(a => a.textContent === 'distribution')
  .map(a => [a.closest('tr').textContent, to(a).querySelector('figcaption').textContent]);
seen.hidden = tabs.flatMap(tab => (tab.click(), all('section.table .scroll')
  .filter(box => box.scrollWidth > box.clientWidth).map(box => box.getAttribute('aria-label'))));
tabs[0].click();
return seen;"##;

/// The picture: a box that is opened is as wide as all, and Escape shows all again.
const ZOOM: &str = "
const frames = [...document.querySelectorAll('.frame')];
const press = key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
const wide = () => frames.map(frame => Math.round(frame.getBoundingClientRect().width));
const seen = { names: frames.map(frame => frame.textContent), levels: frames.map(frame => frame.ariaLevel), before: wide() };
frames[0].focus();
seen.way = ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowLeft', 'ArrowRight'].map(key => (press(key), frames.indexOf(document.activeElement)));
press('Enter');
seen.zoomed = wide();
seen.opened = [...document.querySelectorAll('.function')].filter(item => !item.hidden).map(item => item.querySelector('h2').title);
press('Escape');
seen.after = wide();
return seen;";

/// A phone: the page itself does not scroll sideways, tables do.
const NARROW: &str = "const box = document.querySelector('#hot .scroll');
return [document.documentElement.scrollWidth, window.innerWidth, box.scrollWidth > box.clientWidth];";

/// A table of 250 rows: what is shown at first, of a search, after it, and of all.
const CROWDED: &str = "const table = document.querySelector('#hot table');
const shown = () => [...table.rows].filter(row => row.offsetHeight > 0).length - 1;
const search = document.querySelector('#search');
const find = text => { search.value = text; search.dispatchEvent(new Event('input')); return shown(); };
const more = table.nextElementSibling;
return [shown(), more.textContent, find('f24'), more.offsetHeight, find(''), (more.click(), shown()), more.offsetHeight];";

#[test]
fn a_browser_renders_it() {
    let Some(browser) = Browser::find() else { return };
    let Some(dir) = evil() else { return };
    let Some((_folder, calls)) = stacks() else { return };
    let page = page(dir.path(), "<b>&.data", &[]);
    let (page, wide) = (page.as_str(), (1400, 1000));
    let crowded = crowded();
    let frames = [
        (page, wide, false, WALK),
        (&calls, wide, true, ZOOM),
        (page, (360, 800), false, NARROW),
        (&crowded, wide, false, CROWDED),
    ];
    let looked = browser.look(&frames);
    for ((_, size, dark, _), (_, pixels)) in frames.iter().zip(&looked) {
        let paper = if *dark { [0x0D, 0x11, 0x17] } else { [0xFF, 0xFF, 0xFF] };
        assert_eq!(pixels[0], paper, "{size:?}");
        let drawn = pixels.iter().filter(|pixel| **pixel != paper).count();
        assert!(drawn > pixels.len() / 50, "{size:?}: {drawn} of {} are not paper", pixels.len());
    }
    let seen = &looked[0].0;
    assert_eq!(seen["scripts"], 2, "ours: none came out of the recording: {seen}");
    let list = |of: &Value| of.as_array().unwrap().clone();

    let zoom = &looked[1].0;
    let at = |of: &Value| usize::try_from(of.as_u64().unwrap()).unwrap();
    let way: Vec<usize> = list(&zoom["way"]).iter().map(at).collect();
    // Down three levels, then to the next box of the same one.
    assert!(way[..3] == [1, 2, 3] && way[4] == 3 && way[5] == way[3] && way[3] > 3, "{zoom}");
    let here = way[5];
    assert_eq!(zoom["levels"][here], zoom["levels"][3]);
    assert!(zoom["before"][here].as_u64() < zoom["before"][0].as_u64(), "{zoom}");
    assert_eq!(zoom["zoomed"][here], zoom["before"][0]);
    assert_eq!(zoom["zoomed"][3], 0, "its neighbour is hidden");
    assert_eq!(zoom["after"], zoom["before"]);
    assert_eq!(zoom["opened"], serde_json::json!([zoom["names"][here]]));
    assert_eq!(seen["tabs"], serde_json::json!([["hot"], ["types"], ["mispredict"]]));
    let figures = list(&seen["figures"]);
    assert!(figures.len() > 1 && list(&figures[0]).len() == 1, "{seen}");
    assert!(figures[1..].iter().all(|at| list(at).len() == 2 && at[0] == at[1]), "{seen}");
    assert!(list(&seen["boxes"]).iter().all(|at| at[0] == at[1]), "{seen}");

    let number = |text: &Value| text.as_str().unwrap().replace(',', "").parse::<u64>().unwrap();
    let numbers = |of: &Value| list(&of[1]).iter().map(number).collect::<Vec<_>>();
    assert!(seen["before"].is_null());
    assert_eq!(seen["first"][0], "descending");
    let falling = numbers(&seen["first"]);
    assert!(falling.len() > 2 && falling.is_sorted_by(|a, b| a >= b), "{falling:?}");
    assert_eq!(seen["second"][0], "ascending");
    assert!(numbers(&seen["second"]).is_sorted(), "{seen}");
    assert!(seen["other"].is_null());
    let (all, shown) = (&seen["search"][0], &seen["search"][1]);
    assert!(shown.as_u64() > Some(0) && shown.as_u64() < all.as_u64(), "{seen}");
    assert_eq!(seen["search"][2], format!("Hot branches ({shown})"));
    assert_eq!((seen["focus"].as_str(), &seen["cleared"][1]), (Some("search"), all));

    // A location links to its instruction, a block to its cycle distribution.
    let offset = |text: &str| {
        let digits = text.split("+0x").nth(1).unwrap().split(' ').next().unwrap();
        u64::from_str_radix(digits, 16).unwrap()
    };
    assert!(list(&seen["places"]).len() >= 4, "{seen}");
    for link in list(&seen["places"]) {
        let address = format!("{:x}", CODE + offset(link[0].as_str().unwrap()));
        assert!(list(&link[1]).iter().any(|cell| *cell == *address), "{link}");
    }
    assert!(!list(&seen["drawn"]).is_empty(), "{seen}");
    for link in list(&seen["drawn"]) {
        let (caption, row) = (link[1].as_str().unwrap(), link[0].as_str().unwrap());
        let offsets = caption.split(" .. ").map(|end| &end[end.find("+0x").unwrap()..]);
        assert!(offsets.into_iter().all(|offset| row.contains(offset)), "{link}");
    }
    assert_eq!(list(&seen["hidden"]).len(), 0, "no table hides a column: {seen}");
    let narrow = &looked[2].0;
    assert!(narrow[0].as_u64() <= narrow[1].as_u64() && narrow[2] == true, "{narrow}");
    // f24 and f240 to f249.
    let crowded = serde_json::json!([60, "Show all 250 rows", 11, 0, 60, 250, 0]);
    assert_eq!(looked[3].0, crowded);
}

/// A page about 250 branches.
fn crowded() -> String {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..250).map(|at| format!(" f{at}+0x8/f{at}+0x0/P/-/-/3\n")).collect();
    std::fs::write(dir.path().join("perf.txt"), text).unwrap();
    page(dir.path(), "perf.txt", &[])
}

/// A page about a program with calls.
fn stacks() -> Option<(tempfile::TempDir, String)> {
    let program = build("stacks.S", BARE)?;
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(&program.path, dir.path().join("program")).unwrap();
    let out = lbr_in(dir.path(), &["record", "--model", "-o", "perf.data", "--", "./program"]);
    if out.status.code() != Some(0) {
        skipped(String::from_utf8_lossy(&out.stderr));
        return None;
    }
    let page = page(dir.path(), "perf.data", &[]);
    Some((dir, page))
}

/// Rows and boxes have the numbers of `lbr report --json`.
#[test]
fn numbers_are_those_of_the_report() {
    let Some((dir, page)) = stacks() else { return };
    let json = |view: &str| -> Vec<Value> {
        let text = printed(&lbr_in(dir.path(), &["report", "--view", view, "--json"]));
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["view"] == view && row["kind"] != "basic_block").collect()
    };
    // The first table of a section, as its headings and cells.
    let table = |id: &str| -> Vec<Vec<String>> {
        let section = page.split(&format!("<section id=\"{id}\"")).nth(1).unwrap();
        let table = section.split("</table>").next().unwrap();
        let cells = |row: &str| -> Vec<String> {
            let cells = row.split("</t").filter_map(|cell| cell.rsplit_once('>'));
            cells.map(|(_, text)| text.replace(',', "")).collect()
        };
        table.split("<tr").skip(1).map(|row| cells(row.split("</tr>").next().unwrap())).collect()
    };
    for (view, columns) in [
        ("hot", &[("count", "count")][..]),
        ("mispredict", &[("mispredicts", "mispredicted"), ("taken", "taken")]),
        ("blocks", &[("count", "count"), ("p50", "p50"), ("p90", "p90"), ("max", "max")]),
        ("callgraph", &[("total", "total"), ("self", "self"), ("calls", "calls")]),
    ] {
        let (rows, mut objects) = (table(view), json(view));
        objects.retain(|row| row["kind"] != "context");
        objects.retain(|row| view != "mispredict" || row["mispredicted"].as_u64() > Some(0));
        assert!(rows.len() > 2 && rows.len() - 1 == objects.len(), "{view}: {rows:?}");
        for (heading, key) in columns {
            let at = rows[0].iter().position(|cell| cell == heading);
            let at = at.unwrap_or_else(|| panic!("{heading} in {:?}", rows[0]));
            for (row, object) in rows[1..].iter().zip(&objects) {
                let value = object[*key].as_u64().map_or("-".to_owned(), |value| value.to_string());
                assert_eq!(row[at], value, "{view} {heading}: {row:?} {object}");
            }
        }
    }
    let mut contexts = json("callgraph");
    contexts.retain(|row| row["kind"] == "context");
    let mut boxes: Vec<String> = contexts
        .iter()
        .map(|row| {
            let path = row["path"].as_array().unwrap();
            let name = path.last().unwrap().as_str().unwrap();
            format!("{} {name} {} {}", path.len(), row["total"], row["self"])
        })
        .collect();
    let mut drawn: Vec<String> = page
        .split("<a class=\"frame ")
        .skip(2)
        .map(|frame| {
            let of = |start: &str, end: &str| {
                frame.split(start).nth(1).unwrap().split(end).next().unwrap().replace(',', "")
            };
            let (level, name, total) = (of("--l:", "\""), of("title=\"", "\n"), of("\n", " "));
            format!("{level} {name} {total} {}", of("; ", " "))
        })
        .collect();
    boxes.sort();
    drawn.sort();
    assert!(boxes.len() > 5);
    assert_eq!(drawn, boxes);
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
