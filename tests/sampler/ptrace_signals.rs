//! Signals as a single-stepper shows them: cause, address, sender and registers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;

use lbr_msr::record::Event;
use lbr_msr::soft::Retired;
use nix::libc;
use sampler::gate::{Closed, Recorder, Retire};
use sampler::source::Exit;
use sampler::source::ptrace::Ptrace;
use sampler::target::{REGISTERS, SignalStop, ThreadId};

use crate::program::{Program, build, from_main};

/// Keeps the signals that were delivered, the process that got them, and those that were deadly.
#[derive(Default)]
struct Signals {
    delivered: Mutex<Vec<(u32, SignalStop)>>,
    deadly: Mutex<Vec<SignalStop>>,
}

struct SignalRing<'a>(&'a Signals, u32);

impl<'a> Recorder for &'a Signals {
    type Ring = SignalRing<'a>;
    fn start(&self, thread: ThreadId) -> Result<SignalRing<'a>, Closed> {
        Ok(SignalRing(self, thread.pid))
    }
    fn emit(&self, _: Event) -> Result<(), Closed> {
        Ok(())
    }
    fn is_closed(&self) -> bool {
        false
    }
    fn wants_signals(&self) -> bool {
        true
    }
}

impl Retire for SignalRing<'_> {
    fn retire(&mut self, _: &Retired) -> Result<(), Closed> {
        Ok(())
    }
    fn signalled(&mut self, stop: &SignalStop) {
        self.0.delivered.lock().unwrap().push((self.1, stop.clone()));
    }
    fn died(&mut self, stop: SignalStop) {
        self.0.deadly.lock().unwrap().push(stop);
    }
    fn finish(self) -> Result<(), Closed> {
        Ok(())
    }
}

fn program() -> Option<Program> {
    build("stops.c", &["-static", "-O1", "-w"])
}

/// The signal that ends the program, and its process.
fn death(program: &Program, way: &str) -> (u32, SignalStop) {
    let signals = Signals::default();
    let mut source = Ptrace::new(from_main(program, &[way])).unwrap();
    let (exit, _) = source.run_into(&&signals).unwrap();
    let [(pid, stop)] = &signals.delivered.lock().unwrap()[..] else { panic!("{way}: one signal") };
    assert_eq!(exit, Exit::Signal(stop.signal), "{way}");
    assert_eq!(*signals.deadly.lock().unwrap(), vec![stop.clone()], "{way}");
    (*pid, stop.clone())
}

/// sigaction(2), `si_code` and its fields; linux/siginfo.h: SEGV_MAPERR 1, BUS_ADRERR 2, ILL_ILLOPN
/// 2, FPE_INTDIV 1, SI_KERNEL 0x80.
#[test]
fn a_fault_has_its_address_and_other_signals_their_sender() {
    let Some(program) = program() else { return };
    let at = |label| Some(program.at(label));
    for (way, signal, code, address, is_sent) in [
        ("segv", libc::SIGSEGV, 1, Some(0x123), false),
        ("bus", libc::SIGBUS, 2, Some(0x2000_0045), false),
        ("ill", libc::SIGILL, 2, at("ill_i"), false),
        ("fpe", libc::SIGFPE, 1, at("fpe_i"), false),
        // The kernel does not know which address a protected instruction would use.
        ("hlt", libc::SIGSEGV, 0x80, None, false),
        ("kill", libc::SIGTERM, libc::SI_USER, None, true),
        ("tgkill", libc::SIGUSR2, libc::SI_TKILL, None, true),
        ("queue", libc::SIGRTMIN(), libc::SI_QUEUE, None, true),
        ("bus-sent", libc::SIGBUS, libc::SI_USER, None, true),
        // As if the process had sent it.
        ("pipe", libc::SIGPIPE, libc::SI_USER, None, true),
    ] {
        let (pid, stop) = death(&program, way);
        assert_eq!((stop.signal, stop.code), (signal, Some(code)), "{way}");
        assert_eq!((stop.address, stop.sender), (address, is_sent.then_some(pid)), "{way}");
    }
}

#[test]
fn registers_are_in_their_order() {
    let Some(program) = program() else { return };
    let (_, stop) = death(&program, "ill");
    assert_eq!(stop.ip, program.at("ill_i"));
    // UD2.
    assert_eq!(stop.code_bytes[..2], [0x0f, 0x0b]);
    let registers = stop.registers.unwrap();
    let named = [
        ("rax", 1),
        ("rbx", 2),
        ("rcx", 3),
        ("rdx", 4),
        ("rsi", 5),
        ("rdi", 6),
        ("rbp", 7),
        ("rsp", 8),
        ("r8", 9),
        ("r9", 10),
        ("r10", 11),
        ("r11", 12),
        ("r12", 13),
        ("r13", 14),
        ("r14", 15),
        ("r15", 16),
        ("rip", program.at("ill_i")),
    ];
    for (name, value) in named {
        let at = REGISTERS.iter().position(|register| *register == name).unwrap();
        assert_eq!(registers[at], value, "{name}");
    }
    // The carry flag is set, and not the trap flag of the stepper.
    assert_eq!((REGISTERS[17], registers[17] & 0x101), ("rflags", 1));
}
