/* The last steps of each thread that a signal kills, by single-stepping with ptrace. Shares no code
   with lbr and decodes nothing.
   usage: last_step PROGRAM [ARGUMENT...]
   For each: a line "thread SIGNAL", then FROM TO BYTES of its last steps, newest first: BYTES are
   the 16 at FROM when it dies, all hexadecimal. */
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

enum { STEPS = 512, TASKS = 64 };
struct step { unsigned long from, to; };
static struct task {
    pid_t id;
    int signal, placed;
    unsigned long at, count;
    struct step steps[STEPS];
} tasks[TASKS];

static struct task *task_of(pid_t id) {
    struct task *free = 0;
    for (struct task *task = tasks; task < tasks + TASKS; task++) {
        if (task->id == id) return task;
        if (!task->id && !free) free = task;
    }
    if (!free) exit(2);
    memset(free, 0, sizeof *free);
    free->id = id;
    return free;
}

static void step(struct task *task, unsigned long to) {
    struct step *step = &task->steps[task->count++ % STEPS];
    step->from = task->at, step->to = to, task->at = to;
}

static void print(struct task *task) {
    printf("thread %d\n", task->signal);
    for (unsigned long i = 1; i <= STEPS && i <= task->count; i++) {
        struct step *step = &task->steps[(task->count - i) % STEPS];
        printf("%lx %lx ", step->from, step->to);
        for (int word = 0; word < 2; word++) {
            unsigned long code = ptrace(PTRACE_PEEKTEXT, task->id, step->from + 8 * word, 0);
            for (int b = 0; b < 8; b++) printf("%02lx", code >> b * 8 & 255);
        }
        printf("\n");
    }
}

/* A task has stopped: the signal to deliver. */
static int stopped(pid_t id, int status) {
    struct user_regs_struct regs;
    siginfo_t info;
    unsigned long message = 0;
    int signal = WSTOPSIG(status), event = status >> 16;
    struct task *task = task_of(id);
    if (ptrace(PTRACE_GETREGS, id, 0, &regs)) return 0;
    if (event == PTRACE_EVENT_EXIT) {
        ptrace(PTRACE_GETEVENTMSG, id, 0, &message);
        if (WIFSIGNALED(message) && task->signal == WTERMSIG(message)) print(task);
        return 0;
    }
    if (event == PTRACE_EVENT_EXEC || !task->placed) {
        task->count = 0, task->placed = 1, task->at = regs.rip;
        return 0;
    }
    if (event) return 0;
    ptrace(PTRACE_GETSIGINFO, id, 0, &info);
    if (signal != SIGTRAP) {
        if (regs.rip != task->at) step(task, regs.rip);
        task->signal = signal;
        return signal;
    }
    if (info.si_code == SIGTRAP) task->at = regs.rip; /* at the first instruction of a handler */
    else if (regs.rip != task->at || info.si_code == TRAP_TRACE) step(task, regs.rip);
    return 0;
}

int main(int argc, char **argv) {
    int status;
    pid_t id, child = argc < 2 ? -1 : fork();
    if (child < 0) return 2;
    if (!child) {
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        dup2(2, 1);
        execv(argv[1], argv + 1);
        _exit(127);
    }
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
           PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
    for (id = child; id > 0; id = waitpid(-1, &status, __WALL)) {
        if (WIFSTOPPED(status)) {
            int signal = stopped(id, status);
            ptrace(PTRACE_SINGLESTEP, id, 0, signal);
        } else task_of(id)->id = 0;
    }
    return 0;
}
