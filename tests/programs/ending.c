/* Ways to end that a recorder must not change; argv[1] chooses. */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/ucontext.h>
#include <unistd.h>

#define TRAP_FLAG 0x100

static volatile int traps;

static void finish(int signal)
{
    (void)signal;
    write(1, "finished\n", 9);
    _exit(5);
}

/* Counts three traps, then ends them in the flags it returns to. */
static void count(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    if (++traps == 3)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static volatile sig_atomic_t received;

static void receive(int signal)
{
    (void)signal;
    received++;
}

static void set_trap_flag(void)
{
    __asm__ volatile("pushfq; orq $0x100, (%rsp); popfq; nop; nop; nop; nop; nop");
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "handler")) {
        signal(SIGINT, finish);
        signal(SIGTERM, finish);
        write(1, "ready\n", 6);
        for (;;)
            traps++;
    }
    if (!strcmp(way, "stubborn")) {
        signal(SIGINT, SIG_IGN);
        write(1, "ready\n", 6);
        for (;;)
            traps++;
    }
    /* How often a signal came within a second of the first. */
    if (!strcmp(way, "receive")) {
        unsigned left = 1;
        signal(SIGTERM, receive);
        write(1, "ready\n", 6);
        while (!received)
            traps++;
        while (left)
            left = sleep(left);
        return 10 + received;
    }
    if (!strcmp(way, "trap")) {
        set_trap_flag();
        return 0;
    }
    if (!strcmp(way, "count")) {
        struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO};
        sigaction(SIGTRAP, &action, 0);
        set_trap_flag();
        return traps;
    }
    if (!strcmp(way, "user"))
        return getuid() == 65534 && geteuid() == 65534 && getegid() != 0 ? 8 : 7;
    if (!strcmp(way, "traceme"))
        return ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 ? 4 : 6;
    return 99;
}
