#!/usr/bin/env python3
"""A program of random branches, and a judge of what perf recorded of it.

  judge.py program SEED ROUNDS                  its source, for the C compiler
  judge.py check PROGRAM FILTER [DEPTH [arch [TRACE]]]
                                                reads `perf script -F ip,brstack`,
                                                with TRACE -F tid,time,ip,brstack

The judge knows the program by objdump alone. Each entry has to be a branch of
the program that reaches its TO, of a class that FILTER lets through; where the
filter leaves out no class, nothing but straight code and branches that are not
taken may lie between the TO of an entry and the FROM of the next one; the
address of a sample is the TO of its newest entry. With `stack` an entry is a
call that has not returned. What the entries say beside is held against the
program too: types, predictions (of random conditions some are wrong, of direct
branches most are right) and cycles (not all alike). Where DEPTH is given most
stacks have to be that deep: what perf's own filter leaves out is missed there.
With `arch`, Architectural LBR, a call to the next instruction is no branch, and no
entry starts in a ring that is filtered out. TRACE is what Linux read and wrote of
these registers at each change of task: behind a call stack it restores what it had
saved at the same place of a deeper one (intel_pmu_arch_lbr_save stops at the first
empty record, intel_pmu_arch_lbr_restore does not). Entries that were restored so,
at the bottom of a stack and in their order, need no straight way. Prints samples,
entries, those with an end in the kernel, how many are wrong, and how many were
restored so; status 1 where some are wrong.
"""

import bisect
import re
import subprocess
import sys

BLOCKS, LEAVES = 64, 8
# Of Architectural LBR, as deep as the machine has it.
RECORDS = 32
MASK = (1 << 64) - 1


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return ((z ^ z >> 31) & MASK) % limit


def program(seed, rounds):
    random = Random(seed)
    line = print
    line(".text\n.globl _start\n_start:")
    line(f"  mov ${rounds}, %r14\n  mov ${random.below(1 << 62) | 1}, %rbx")
    line("  movabs $0x5851F42D4C957F2D, %r13\n  xor %r12d, %r12d\n  jmp block0")
    for n in range(BLOCKS):
        line(f"block{n}:\n  imul %r13, %rbx\n  add $0x14057B7F, %rbx")
        line("  dec %r14\n  js done")
        for _ in range(random.below(4)):
            line("  add %rbx, %r12")
        if random.below(4) == 0:
            line("  call 1f\n1:\n  pop %rax")
        # Forwards or backwards, never to the next instruction.
        to = (n + 2 + random.below(BLOCKS - 3)) % BLOCKS
        other = (n + 2 + random.below(BLOCKS - 3)) % BLOCKS
        kind = random.below(6)
        if kind == 0:
            line(f"  jmp block{to}")
        elif kind == 1:
            line(f"  bt ${20 + random.below(40)}, %rbx\n  lea block{to}(%rip), %rax")
            line(f"  lea block{other}(%rip), %rcx\n  cmovc %rcx, %rax\n  jmp *%rax")
        elif kind == 2:
            line(f"  call leaf{random.below(LEAVES)}\n  jmp block{to}")
        elif kind == 3:
            line(f"  lea leaf{random.below(LEAVES)}(%rip), %rax\n  call *%rax\n  jmp block{to}")
        else:
            line(f"  bt ${20 + random.below(40)}, %rbx\n  jc block{to}\n  jmp block{other}")
    for n in range(LEAVES):
        line(f"leaf{n}:\n  add ${n + 1}, %r12")
        if n + 1 < LEAVES and n % 2 == 0:
            line(f"  call leaf{n + 1}")
        line("  ret")
    line("done:\n  mov $60, %eax\n  xor %edi, %edi\n  syscall")
    line('.section .note.GNU-stack,"",@progbits')


def disassembled(path):
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    line = re.compile(r"^\s+([0-9a-f]+):\s+(?:bnd |notrack |rep[nz]* )*(\S+)\s*(.*)")
    code = {}
    for match in map(line.match, text.splitlines()):
        if match:
            code[int(match[1], 16)] = (match[2], match[3])
    addresses = sorted(code)
    return code, dict(zip(addresses, addresses[1:]))


def kind_of(name, operand):
    indirect = operand.startswith("*")
    if name in ("jmp", "jmpq"):
        return "ind_jmp" if indirect else "jmp"
    if name.startswith("j"):
        return "cond"
    if name in ("call", "callq"):
        return "ind_call" if indirect else "call"
    if name in ("ret", "retq"):
        return "ret"
    return "syscall" if name == "syscall" else None


CLASSES = {
    "any_call": {"call", "ind_call", "syscall"},
    "any_ret": {"ret"},
    "call": {"call"},
    "ind_call": {"ind_call"},
    "ind_jmp": {"ind_jmp"},
    "cond": {"cond"},
    "stack": {"call", "ind_call"},
}
UNCONDITIONAL = {"jmp", "ind_jmp", "call", "ind_call", "ret"}
TYPES = {"cond": "COND", "jmp": "UNCOND", "ind_jmp": "IND", "call": "CALL", "ind_call": "IND_CALL", "ret": "RET"}


FROM, TO, RESET = 0x1500, 0x1600, 0x14CF
TRACED = re.compile(r"\s*\S.*-(\d+)\s+\[\d+\]\s+\S+\s+([\d.]+): (\w+): (.*)")


class Thread:
    """What Linux saved and restored of one thread's records. A place is a register's number: 0 is the newest."""

    def __init__(self):
        # By place, all that was saved there at any time.
        self.saved = [set() for _ in range(RECORDS)]
        # Last saved, and whether it still goes on.
        self.saving, self.live, self.before = False, [], []
        self.written = []
        # From when on, and what then lies at the bottom of the ring and is of no call that goes on.
        self.since, self.stale = [-1.0], [[]]

    def switched_away(self):
        self.saving, self.live, self.written = True, [], []
        # What was restored so before lies at the bottom of what is saved now.
        self.before = self.stale[-1]

    def read(self, register, value):
        place = register % 0x100
        if register < TO and (place != len(self.live) or not value):
            self.saving = False
        if self.saving and register < TO:
            self.live.append([value])
        elif self.saving:
            self.live[place].append(value)
            self.saved[place].add(tuple(self.live[place]))

    def wrote(self, time, register, value):
        self.saving = False
        if register == RESET:
            self.since.append(time)
            self.stale.append([])
        elif register < TO:
            self.written.append([value])
        else:
            self.written[register % 0x100].append(value)
            self.restored(time)

    def restored(self, time):
        live, before = [tuple(pair) for pair in self.live], self.before
        kept = max(n for n in range(len(before) + 1) if live[len(live) - n :] == before[:n])
        if kept < len(before) and len(live) < RECORDS:
            kept = 0
        stale = [tuple(pair) for pair in self.written[len(live) :]]
        known = all(pair in saved for pair, saved in zip(stale, self.saved[len(live) :]))
        self.since.append(time)
        self.stale.append(live[len(live) - kept :] + stale if known else [])

    def bottom(self, time, stack):
        """How many entries of this stack were restored of another."""
        stale = self.stale[bisect.bisect_right(self.since, time) - 1]
        if len(stack) == RECORDS:
            lengths = [n for n in range(len(stale) + 1) if stack[RECORDS - n :] == stale[:n]]
            return max(lengths)
        return len(stale) if stack[len(stack) - len(stale) :] == stale else 0


def traced(path):
    threads = {}
    with open(path) as lines:
        for match in filter(None, map(TRACED.match, lines)):
            thread = threads.setdefault(int(match[1]), Thread())
            if match[3] == "sched_switch":
                thread.switched_away()
                continue
            register, value = (int(word, 16) for word in match[4].split(", value "))
            if match[3] == "read_msr":
                thread.read(register, value)
            else:
                thread.wrote(float(match[2]), register, value)
    return threads


def check(path, filters, depth=0, arch=None, trace=None):
    code, after = disassembled(path)
    words = set(filters.split(","))
    wanted = set().union(*(CLASSES.get(word, set()) for word in words))
    everything = "any" in words
    ends = UNCONDITIONAL - CLASSES["stack"] if "stack" in words else UNCONDITIONAL
    depth, full = int(depth), 0
    # Of direct branches and of conditions, by what is said of their prediction.
    predicted = {"direct": {}, "cond": {}}
    cycles = {}
    threads = traced(trace) if trace else {}
    samples = entries = kernel = restored = 0
    wrong = {}

    def goes_on(at):
        kind = kind_of(*code.get(at, ("", "")))
        return kind not in ends or arch and is_to_next(at)

    def is_to_next(at):
        name, operand = code.get(at, ("", ""))
        target = re.match(r"([0-9a-f]+)", operand)
        return kind_of(name, operand) == "call" and target and int(target[1], 16) == after.get(at)

    def is_wrong(what, *where):
        wrong.setdefault(what, []).append(" ".join(map(hex, where)))

    for line in sys.stdin:
        parts = line.split()
        if not parts:
            continue
        samples += 1
        thread, time = None, 0
        if trace:
            thread, time = threads.get(int(parts[0])), float(parts[1].rstrip(":"))
            parts = parts[2:]
        fields = [part.split("/") for part in parts[1:] if "/" in part]
        stack = [(int(start, 16), int(to, 16)) for start, to, *_ in fields]
        full += len(stack) >= depth
        own = len(stack) - (thread.bottom(time, stack) if thread else 0)
        restored += len(stack) - own
        for place, ((start, to), (_, _, prediction, _, _, took, *types)) in enumerate(zip(stack, fields)):
            entries += 1
            if start >> 63 or to >> 63:
                kernel += 1
                # Into user mode only, and then it is a return.
                returns = everything or "any_ret" in words
                if "k" not in words and (to >> 63 or not returns or arch):
                    is_wrong("of the kernel", start, to)
                continue
            if "u" not in words:
                is_wrong("of the program", start, to)
            name, operand = code.get(start, ("nothing", ""))
            kind = kind_of(name, operand)
            target = re.match(r"([0-9a-f]+)", operand)
            if kind is None:
                is_wrong("no branch", start, to)
            elif target and kind in ("jmp", "cond", "call") and int(target[1], 16) != to:
                is_wrong("not its target", start, to)
            elif to not in code:
                is_wrong("into no instruction", start, to)
            elif (arch or "stack" in words) and is_to_next(start):
                is_wrong("call to the next instruction", start, to)
            elif not everything and kind not in wanted:
                is_wrong(f"{kind} although filtered", start, to)
            elif types and types[0] not in ("", "-", TYPES.get(kind)):
                is_wrong(f"{kind} said to be {types[0]}", start, to)
            if place >= own:
                continue
            group = predicted.get("direct" if kind in ("jmp", "call") else kind, {})
            group[prediction] = group.get(prediction, 0) + 1
            cycles[took] = cycles.get(took, 0) + 1
        if "u" in words and stack and not int(parts[0], 16) >> 63 and stack[0][1] >> 63:
            is_wrong("newest in the kernel, sample is not", *stack[0])
        if not everything and "stack" not in words:
            continue
        # The sample's address first, as if a branch started there.
        starts = [int(parts[0], 16)] + [start for start, _ in stack]
        for start, (_, to) in zip(starts, stack[:own]):
            if start >> 63 or to >> 63:
                continue
            at = to
            while at is not None and at < start:
                at = after.get(at) if goes_on(at) else None
            if at != start:
                is_wrong("no straight way", to, start)
    # The first ones may come before the ring has filled.
    if "stack" not in words and full * 2 < samples:
        is_wrong(f"{full} of {samples} stacks {depth} deep")
    direct, cond = predicted["direct"], predicted["cond"]
    if direct.get("M", 0) > direct.get("P", 0):
        is_wrong("direct branches mispredicted")
    if cond.get("P", 0) > 200 and "M" not in cond:
        is_wrong("random conditions never mispredicted")
    if sum(cycles.values()) > 200 and len(cycles) == 1 and int(*cycles) > 0:
        is_wrong("cycles all alike")
    total = sum(map(len, wrong.values()))
    print(f"{samples} {entries} {kernel} {total} {restored}")
    for what, places in wrong.items():
        print(f"  {len(places)} {what}: {', '.join(places[:3])}", file=sys.stderr)
    return 1 if total or not entries else 0


if __name__ == "__main__":
    if sys.argv[1] == "program":
        program(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(check(*sys.argv[2:]))
