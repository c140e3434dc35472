/* Counts how often each instruction of a program is followed by which other, by
   single-stepping it with ptrace. Shares no code with lbr, decodes nothing, and
   follows threads and children.
   usage: stepper OUTPUT PROGRAM [ARGUMENT...]
   Lines of OUTPUT: FROM TO COUNT, hexadecimal but for the count; TO is 0 where
   the thread ended. Transfers by the kernel (signals) are no lines. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 1 << 20, TASKS = 256 };
static struct { unsigned long from, to, count; } pairs[SLOTS];
static struct { pid_t id; unsigned long at; } tasks[TASKS];

static void follow(unsigned long from, unsigned long to) {
    unsigned long slot = (from * 31 + to) * 0x9e3779b97f4a7c15ul >> 44;
    while (pairs[slot].count && (pairs[slot].from != from || pairs[slot].to != to))
        slot = (slot + 1) % SLOTS;
    pairs[slot].from = from, pairs[slot].to = to, pairs[slot].count++;
}

/* The task of an id; one that is new is not placed yet (0). */
static unsigned long *at_of(pid_t id) {
    int free = -1;
    for (int i = 0; i < TASKS; i++) {
        if (tasks[i].id == id) return &tasks[i].at;
        if (!tasks[i].id && free < 0) free = i;
    }
    if (free < 0) fprintf(stderr, "stepper: too many threads\n"), exit(2);
    tasks[free].id = id, tasks[free].at = 0;
    return &tasks[free].at;
}

static void forget(pid_t id) {
    for (int i = 0; i < TASKS; i++)
        if (tasks[i].id == id) tasks[i].id = 0;
}

/* A task has stopped: the signal to deliver. */
static int stopped(pid_t id, int status) {
    struct user_regs_struct regs;
    siginfo_t info;
    int signal = WSTOPSIG(status), event = status >> 16;
    unsigned long *at = at_of(id), ip;
    if (ptrace(PTRACE_GETREGS, id, 0, &regs)) return 0;
    ip = regs.rip;
    if (!*at) {
        *at = ip;
        return 0;
    }
    if (event == PTRACE_EVENT_EXEC) {
        follow(*at, 0), *at = ip;
        return 0;
    }
    if (event == PTRACE_EVENT_EXIT) {
        if (ip != *at) follow(*at, 0);
        return 0;
    }
    if (event) return 0;
    if (signal != SIGTRAP) {
        if (ip != *at) follow(*at, ip), *at = ip;
        return signal;
    }
    ptrace(PTRACE_GETSIGINFO, id, 0, &info);
    if (info.si_code == SIGTRAP) *at = ip; /* at the first instruction of a handler */
    else if (ip != *at || info.si_code == TRAP_TRACE) follow(*at, ip), *at = ip;
    return 0;
}

int main(int argc, char **argv) {
    int status;
    pid_t id, child = argc < 3 ? -1 : fork();
    if (child < 0) return 2;
    if (!child) {
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
           PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
    for (id = child;; ) {
        if (WIFSTOPPED(status)) {
            int signal = stopped(id, status);
            ptrace(PTRACE_SINGLESTEP, id, 0, signal);
        } else forget(id);
        id = waitpid(-1, &status, __WALL);
        if (id < 0) break;
    }
    FILE *out = fopen(argv[1], "w");
    if (!out) return 2;
    for (int i = 0; i < SLOTS; i++)
        if (pairs[i].count)
            fprintf(out, "%lx %lx %lu\n", pairs[i].from, pairs[i].to, pairs[i].count);
    return fclose(out) != 0;
}
