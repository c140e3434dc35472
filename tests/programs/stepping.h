/* Single-steps a program with ptrace, and the threads and children it starts, from an address on
   (default: the entry, after the dynamic linker). Shares no code with lbr and decodes nothing.
   The file that includes it defines the three functions declared here. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TASKS = 256 };
static unsigned long first_step; /* 0: the entry */

/* In thread TASK, an instruction at FROM was followed by one at TO. */
static void stepped(int task, unsigned long from, unsigned long to);
/* The thread gets SIGNAL. */
static void signalled(int task, int signal);
/* Its program ends with STATUS (0 by exec), at the system call at FROM (0 by a signal). */
static void ended(int task, pid_t id, unsigned long from, int status);

/* PLACED after a thread's first stop, whose address AT is. */
static struct { pid_t id; int placed; unsigned long at; } tasks[TASKS];

static void place(int task, unsigned long at) { tasks[task].placed = 1, tasks[task].at = at; }

static void fail(const char *why, unsigned long value) {
    fprintf(stderr, "stepping: %s: %#lx\n", why, value), exit(2);
}

static int task_of(pid_t id) {
    int free = -1;
    for (int i = 0; i < TASKS; i++) {
        if (tasks[i].id == id) return i;
        if (!tasks[i].id && free < 0) free = i;
    }
    if (free < 0) fail("more threads than", TASKS);
    tasks[free].id = id, tasks[free].placed = 0;
    return free;
}

static unsigned long entry_of(pid_t id) {
    unsigned long value[2];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/auxv", id);
    int file = open(path, O_RDONLY);
    while (read(file, value, sizeof value) == sizeof value)
        if (value[0] == 9 /* AT_ENTRY */) return close(file), value[1];
    fail("no entry of process", id);
    return 0;
}

/* Runs a program that was just loaded up to an address (0: its entry), and returns that. */
static unsigned long run_to(pid_t id, unsigned long address) {
    struct user_regs_struct regs;
    int status;
    if (!address) address = entry_of(id);
    unsigned long code = ptrace(PTRACE_PEEKTEXT, id, address, 0);
    ptrace(PTRACE_POKETEXT, id, address, (code & ~255ul) | 0xcc /* int3 */);
    ptrace(PTRACE_CONT, id, 0, 0);
    waitpid(id, &status, __WALL);
    if (!WIFSTOPPED(status) || status >> 8 != SIGTRAP) fail("status before the first step", status);
    ptrace(PTRACE_POKETEXT, id, address, code);
    ptrace(PTRACE_GETREGS, id, 0, &regs);
    regs.rip = address;
    ptrace(PTRACE_SETREGS, id, 0, &regs);
    return address;
}

/* A thread has stopped: the signal to deliver. */
static int stopped(pid_t id, int status) {
    struct user_regs_struct regs;
    siginfo_t info;
    unsigned long message = 0, ip, at;
    int signal = WSTOPSIG(status), event = status >> 16, task = task_of(id);
    if (ptrace(PTRACE_GETREGS, id, 0, &regs)) return 0;
    at = tasks[task].at, ip = regs.rip;
    if (event == PTRACE_EVENT_EXEC) {
        if (tasks[task].placed) ended(task, id, at, 0);
        place(task, run_to(id, first_step));
    } else if (!tasks[task].placed) place(task, ip);
    else if (event == PTRACE_EVENT_EXIT) {
        ptrace(PTRACE_GETEVENTMSG, id, 0, &message);
        ended(task, id, ip == at ? 0 : at, message);
    } else if (!event) {
        place(task, ip);
        ptrace(PTRACE_GETSIGINFO, id, 0, &info);
        /* The code SIGTRAP: at the first instruction of a handler. */
        if (info.si_code != SIGTRAP && (ip != at || info.si_code == TRAP_TRACE)) stepped(task, at, ip);
        if (signal == SIGTRAP) return 0;
        signalled(task, signal);
        return signal;
    }
    return 0;
}

/* Steps PROGRAM, whose standard output becomes descriptor OUTPUT. */
static void step_program(char **program, int output) {
    int status;
    pid_t id = fork();
    if (!id) {
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        dup2(output, 1);
        execv(program[0], program);
        _exit(127);
    }
    waitpid(id, &status, 0);
    if (!WIFSTOPPED(status)) fail("the program does not start", status);
    ptrace(PTRACE_SETOPTIONS, id, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
           PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
    place(task_of(id), run_to(id, first_step));
    ptrace(PTRACE_SINGLESTEP, id, 0, 0);
    while ((id = waitpid(-1, &status, __WALL)) > 0) {
        if (WIFSTOPPED(status)) {
            int signal = stopped(id, status);
            ptrace(PTRACE_SINGLESTEP, id, 0, signal);
        } else tasks[task_of(id)].id = 0;
    }
}
