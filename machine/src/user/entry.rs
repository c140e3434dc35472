//! The entry points for QEMU. Nothing may unwind into QEMU: a panic in an entry point ends the
//! recording with a message, and the program continues.
#![allow(
    unsafe_code,
    reason = "QEMU's interface is C: pointers come and go, and symbols have fixed names"
)]
#![allow(unreachable_pub, reason = "QEMU reaches it by symbol name")]

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::os::unix::process::parent_id;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use super::api::{self, Id, Insn, Tb};
use super::block::{Block, Ending};
use super::channel::{Region, Sent, Stopped};
use super::cpus::{self, Cpu, FIRST, cpu};
use super::handlers::Handlers;
use super::os;
use super::thread::{Context, Thread};
use lbr_msr::insn::Isa;

/// The plugin interface version, which QEMU reads.
// SAFETY: QEMU looks this symbol up by name and reads an `int`; no other symbol of the plugin has
// the name.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks it up under this name")]
pub static qemu_plugin_version: c_int = api::VERSION;

/// The configuration at load time.
#[derive(Debug)]
struct Setup {
    region: &'static Region,
    /// The process id of `lbr`.
    parent: u32,
    /// The program's instruction set.
    isa: Isa,
    /// Where recording starts, and the lowest executable segment, as addresses of the program's
    /// file.
    from: Option<(u64, u64)>,
}

static SETUP: OnceLock<Setup> = OnceLock::new();
static HANDLERS: Handlers = Handlers::new();
/// Whether branches are sent.
static RECORDING: AtomicBool = AtomicBool::new(false);
/// Recording has ended for good: in a forked child, after a failure, or when the consumer is gone.
static OVER: AtomicBool = AtomicBool::new(false);
/// The address where recording starts; 0 before it is known.
static START: AtomicU64 = AtomicU64::new(0);
/// Whether there was more than one thread. QEMU retranslates everything when the second starts, and
/// runs no earlier code.
static PARALLEL: AtomicBool = AtomicBool::new(false);
static FIRST_TRANSLATION: Once = Once::new();
/// Every translated block, so that retranslation needs no new memory.
static BLOCKS: LazyLock<Mutex<HashMap<Block, &'static Block>>> = LazyLock::new(Mutex::default);

/// Runs an entry point's body; a panic ends the recording.
#[inline]
fn guard(what: &str, body: impl FnOnce() -> Sent) {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => {}
        Ok(Err(Stopped)) => stop(),
        Err(_) => fail(what),
    }
}

#[cold]
fn stop() {
    OVER.store(true, Ordering::Relaxed);
    RECORDING.store(false, Ordering::Relaxed);
}

#[cold]
fn fail(what: &str) {
    stop();
    if let Some(setup) = SETUP.get() {
        setup.region.header.failed.store(1, Ordering::Release);
    }
    // `eprintln!` panics if standard error is closed.
    let message = format!("lbr: the plugin in QEMU failed while {what}; recording ends\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
}

fn context(setup: &Setup) -> Context<'_> {
    Context {
        region: setup.region,
        isa: setup.isa,
        handlers: &HANDLERS,
        recording: RECORDING.load(Ordering::Relaxed),
        modelled: setup.region.header.is_modelled(),
        wait,
    }
}

/// Waits for `lbr` to make space: it does while a drain runs, but not after it has closed or died.
fn wait(tries: u32) -> bool {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 128;
    const NAP: Duration = Duration::from_micros(30);
    match tries {
        0..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        YIELDS.. => std::thread::sleep(NAP),
    }
    let Some(setup) = SETUP.get() else { return false };
    !(setup.region.header.is_closed() || tries >= YIELDS && parent_id() != setup.parent)
}

/// Runs `body` with the calling thread's state.
#[inline]
fn with_thread(what: &str, index: c_uint, body: impl FnOnce(&mut Thread, &Context<'_>) -> Sent) {
    // A forked child must not touch locks that another thread of its parent may have held.
    if OVER.load(Ordering::Relaxed) {
        return;
    }
    guard(what, || {
        let (Some(setup), Some(cpu)) = (SETUP.get(), cpu(index)) else { return Ok(()) };
        // SAFETY: QEMU calls with an index from the thread that owns it (before that thread runs,
        // from its creator), and callbacks on one thread are not nested.
        let thread = unsafe { &mut *cpu.thread.get() };
        body(thread, &context(setup))
    });
}

extern "C" fn thread_comes(_: Id, index: c_uint) {
    guard("a thread came", || {
        // Runs in the creating thread; the first thread creates itself.
        cpus::come(index, |first| {
            if !first {
                PARALLEL.store(true, Ordering::Relaxed);
            }
            if first { 0 } else { os::tid() }
        });
        Ok(())
    });
}

extern "C" fn thread_goes(_: Id, index: c_uint) {
    with_thread("a thread went", index, |thread, context| {
        if context.recording { thread.end(context) } else { Ok(()) }
    });
    cpus::go(index);
}

/// A block starts while the first thread is the only one.
extern "C" fn block_entered_alone(index: c_uint, block: *mut c_void) {
    // SAFETY: see `entered`.
    unsafe { entered(&FIRST, index, block) };
}

extern "C" fn block_entered(index: c_uint, block: *mut c_void) {
    if let Some(cpu) = cpu(index) {
        // SAFETY: see `entered`.
        unsafe { entered(cpu, index, block) };
    }
}

/// Only a recording thread has a ring, so no other check is needed.
///
/// # Safety
/// As in `with_thread`; and `block` is the leaked block that `instrument` registered, without an
/// invisible ending.
#[inline(always)]
unsafe fn entered(cpu: &Cpu, index: c_uint, block: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    let (thread, block) = unsafe { (&mut *cpu.thread.get(), &*block.cast::<Block>()) };
    let (before, reached) = thread.flow.go_to(block);
    if !thread.pass(reached, block, &HANDLERS) {
        enter(index, before, reached.is_some(), block);
    }
}

/// A block that must be counted or modelled starts.
extern "C" fn counted_entered(index: c_uint, block: *mut c_void) {
    let Some(cpu) = cpu(index) else { return };
    // SAFETY: as in `with_thread`; `instrument` registered a leaked block.
    let (thread, block) = unsafe { (&mut *cpu.thread.get(), &*block.cast::<Block>()) };
    let (before, reached) = thread.flow.go_to(block);
    enter(index, before, reached.is_some(), block);
}

/// A separate function, so that the fast path saves no registers.
#[cold]
#[inline(never)]
extern "C" fn enter(
    index: c_uint,
    before: Option<&'static Block>,
    has_reached: bool,
    block: &'static Block,
) {
    with_thread("a block was entered", index, |thread, context| {
        thread.enter((before, before.filter(|_| has_reached)), block, context)
    });
}

extern "C" fn branch_reached(index: c_uint, _: *mut c_void) {
    if let Some(cpu) = cpu(index) {
        // SAFETY: as in `with_thread`.
        unsafe { (*cpu.thread.get()).flow.branch() };
    }
}

extern "C" fn start_reached(index: c_uint, _: *mut c_void) {
    with_thread("the start was reached", index, |thread, context| {
        RECORDING.store(true, Ordering::Relaxed);
        context.region.header.reached.store(1, Ordering::Release);
        thread.begin(START.load(Ordering::Relaxed), context)
    });
}

#[allow(clippy::too_many_arguments, reason = "QEMU's signature")]
extern "C" fn syscall(
    _: Id,
    index: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    with_thread("a system call was made", index, |thread, context| {
        thread.syscall(number, [a1, a2, a3], context)
    });
}

extern "C" fn syscall_returned(_: Id, index: c_uint, number: i64, result: i64) {
    with_thread("a system call returned", index, |thread, context| {
        thread.syscall_returns(number, result, context)
    });
}

extern "C" fn translated(_: Id, tb: *mut Tb) {
    guard("a block was translated", || {
        let Some(setup) = SETUP.get().filter(|_| !OVER.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        // SAFETY: QEMU passes a block that is valid during this callback.
        unsafe { instrument(tb, setup) }
        Ok(())
    });
}

/// Registers the callbacks of a translated block.
///
/// # Safety
/// `tb` must be the argument of a running translation callback.
unsafe fn instrument(tb: *mut Tb, setup: &Setup) {
    // SAFETY: guaranteed by the caller; an index below the count names an instruction of the block,
    // and its data is as long as its size.
    let (count, start, last, address, bytes) = unsafe {
        let count = api::qemu_plugin_tb_n_insns(tb);
        let Some(index) = count.checked_sub(1) else { return };
        let last = api::qemu_plugin_tb_get_insn(tb, index);
        let size = api::qemu_plugin_insn_size(last);
        let data = api::qemu_plugin_insn_data(last).cast::<u8>();
        if data.is_null() {
            return;
        }
        let bytes = std::slice::from_raw_parts(data, size);
        (count, api::qemu_plugin_tb_vaddr(tb), last, api::qemu_plugin_insn_vaddr(last), bytes)
    };
    FIRST_TRANSLATION.call_once(|| first_translation(setup, address, bytes));
    let mut block = Block::new(setup.isa, start, address, bytes, count);
    if !setup.region.header.wants(block.word) {
        block.word = 0;
    }
    let block = known(block);
    let userdata: *mut c_void = std::ptr::from_ref(block).cast_mut().cast();
    let alone = !PARALLEL.load(Ordering::Relaxed);
    let entered = match block.ending {
        Ending::Invisible => counted_entered,
        _ if setup.region.header.is_modelled() => counted_entered,
        _ if alone => block_entered_alone,
        _ => block_entered,
    };
    // SAFETY: as above; the block is leaked, so it outlives QEMU's code, and while there is only
    // the first thread, it runs only code translated here.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(tb, entered, api::NO_REGS, userdata);
        if block.ending != Ending::Straight && alone {
            // Costs no call, but does not distinguish threads.
            let reached = (*FIRST.thread.get()).flow.reached().cast();
            api::qemu_plugin_register_vcpu_insn_exec_inline(last, api::INLINE_ADD_U64, reached, 1);
        } else if block.ending != Ending::Straight {
            api::before(last, branch_reached);
        }
    }
    let wanted = START.load(Ordering::Relaxed);
    if wanted == 0 || !block.contains(wanted) || RECORDING.load(Ordering::Relaxed) {
        return;
    }
    for index in 0..count {
        // SAFETY: as above.
        unsafe {
            let insn: *mut Insn = api::qemu_plugin_tb_get_insn(tb, index);
            if api::qemu_plugin_insn_vaddr(insn) == wanted {
                api::before(insn, start_reached);
            }
        }
    }
}

/// The program is loaded: computes the start address.
fn first_translation(setup: &Setup, address: u64, bytes: &[u8]) {
    let same = os::read::<16>(address, bytes.len())
        .is_some_and(|read| read.get(..bytes.len()) == Some(bytes));
    if !same {
        setup.region.header.relocated.store(1, Ordering::Release);
    }
    if let Some((from, text)) = setup.from {
        // SAFETY: no arguments; the program is loaded.
        let start_code = unsafe { api::qemu_plugin_start_code() };
        START.store(start_code.wrapping_sub(text).wrapping_add(from), Ordering::Relaxed);
    }
}

/// Returns the stored copy of a block.
fn known(block: Block) -> &'static Block {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    blocks.entry(block).or_insert_with(|| Box::leak(Box::new(block)))
}

extern "C" fn forked_parent() {
    if let Some(setup) = SETUP.get().filter(|_| !OVER.load(Ordering::Relaxed)) {
        setup.region.header.forks.fetch_add(1, Ordering::Relaxed);
    }
}

/// A forked child shares its parent's rings, and must not write to them.
extern "C" fn forked_child() {
    stop();
    // SAFETY: the child has only the forking thread.
    unsafe { cpus::each(Thread::refuse) };
}

/// Called by QEMU when it loads the plugin. Arguments: `fd=N`, the shared memory; `self=N`, this
/// library, closed like the memory's descriptor; `parent=PID`, the process id of `lbr` (default:
/// QEMU's parent), with which QEMU ends; `from=ADDRESS,text=ADDRESS`, where recording starts and
/// the lowest executable segment, both hexadecimal file addresses; `isa=aarch64` for a program that
/// is not x86-64; or only `probe=on`, which makes
/// QEMU exit with status 0 to show that it accepts this plugin.
///
/// # Safety
/// `argv` must hold `argc` strings.
// SAFETY: QEMU looks this symbol up by name and calls it with these types; no other symbol of the
// plugin has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _info: *const c_void,
    argc: c_int,
    argv: api::Arguments,
) -> c_int {
    let installed = catch_unwind(|| {
        let count = usize::try_from(argc).unwrap_or(0);
        // SAFETY: guaranteed by the caller.
        let arguments = (0..count).map(|index| unsafe { CStr::from_ptr(*argv.add(index)) });
        install(id, arguments.map(|argument| argument.to_string_lossy().into_owned()))
    });
    match installed {
        Ok(Ok(())) => 0,
        Ok(Err(why)) => {
            let message = format!("lbr: the plugin in QEMU cannot start: {why}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes());
            1
        }
        Err(_) => 1,
    }
}

fn install(id: Id, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut fd, mut parent, mut from, mut text, mut isa) = (None, None, None, None, Isa::X86_64);
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        let hex = || u64::from_str_radix(value.trim_start_matches("0x"), 16).ok();
        match name {
            "probe" => os::succeed(),
            "self" => os::close(value.parse().map_err(|_| "self=N must be a descriptor")?),
            "fd" => fd = value.parse().ok(),
            "parent" => parent = value.parse().ok(),
            "isa" if value == "aarch64" => isa = Isa::Aarch64,
            "from" => from = hex(),
            "text" => text = hex(),
            _ => return Err(format!("it does not know the argument {argument}")),
        }
    }
    let fd = fd.ok_or("it must be started by lbr, which passes fd=N")?;
    let parent = parent.unwrap_or_else(parent_id);
    if !os::end_with(parent) {
        return Err("lbr has ended".to_owned());
    }
    let region = os::map(fd).map_err(|cause| format!("the memory shared with lbr: {cause}"))?;
    let from = from.zip(text);
    SETUP.set(Setup { region, parent, isa, from }).map_err(|_| "it is loaded twice")?;
    if from.is_none() {
        RECORDING.store(true, Ordering::Relaxed);
        region.header.reached.store(1, Ordering::Release);
    }
    // SAFETY: callbacks of the interface's types, with the id that QEMU passed.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, thread_comes);
        api::qemu_plugin_register_vcpu_exit_cb(id, thread_goes);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        api::qemu_plugin_register_vcpu_syscall_cb(id, syscall);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, syscall_returned);
    }
    os::at_fork(forked_parent, forked_child);
    region.header.attached.store(1, Ordering::Release);
    Ok(())
}
