/* Signals of every kind. Exits with 0, or with the number of the check that
   failed; with an argument it ends by SIGABRT. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include "spin.h"

static volatile int users, traps, faults, queued, alarms;
static sigjmp_buf back;
static int pipes[2];

void on_user(int s) { users++; spin(3); }
void on_trap(int s) { traps++; }
void on_fault(int s, siginfo_t *i, void *context) {
    if (++faults == 2) siglongjmp(back, 1);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 3; /* movb, below */
}
void on_queued(int s, siginfo_t *i, void *context) { queued += i->si_value.sival_int; }
void on_alarm(int s) { alarms++; write(pipes[1], "x", 1); }

static void handle(int s, void *handler) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    sigaction(s, &action, 0);
}

void fault(void);
void trap(void);
__asm__(".text\n"
        "fault:   xor %eax, %eax\n"
        "fault_i: movb $0, (%rax)\n"
        "fault_n: ret\n"
        "trap:    nop\n"
        "trap_i:  int3\n"
        "trap_n:  ret\n");

int main(int argc, char **argv) {
    sigset_t all, old;
    if (argc > 1) abort();
    handle(SIGUSR1, on_user);
    handle(SIGTRAP, on_trap);
    handle(SIGSEGV, on_fault);
    handle(SIGRTMIN + 2, on_queued);
    handle(SIGALRM, on_alarm);

    raise(SIGUSR1);
    if (users != 1) return 1;

    fault();
    if (faults != 1) return 2;
    if (sigsetjmp(back, 1) == 0) {
        fault();
        return 3;
    }
    if (faults != 2) return 4;

    trap();
    if (traps != 1) return 5;
    raise(SIGTRAP);
    if (traps != 2) return 6;
    /* A mask with SIGTRAP in it must not cost the handler. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    spin(2);
    sigprocmask(SIG_SETMASK, &old, 0);
    trap();
    if (traps != 3) return 7;

    sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 42});
    if (queued != 42) return 8;

    /* A read that is restarted, and then ends. */
    char byte;
    struct itimerval soon = {.it_value = {.tv_usec = 30000}};
    if (pipe(pipes)) return 9;
    setitimer(ITIMER_REAL, &soon, 0);
    if (read(pipes[0], &byte, 1) != 1 || alarms != 1) return 10;

    /* A signal that is ignored. */
    signal(SIGUSR2, SIG_IGN);
    raise(SIGUSR2);
    spin(4);
    return 0;
}
