/* Children: children fork|after|vfork|clone|clone3|clone3-fork|exec|thread|stop|cpus|child-cpus|sleep|spin N. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "spin.h"

static char *self;

static void *replace(void *unused) {
    execl(self, self, "spin", "6", (char *)0);
    return 0;
}

/* CPUs that this process may use. */
static int cpus(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

static char stack[65536] __attribute__((aligned(4096)));

static int become(void *turns) {
    execl(self, self, "spin", turns, (char *)0);
    return 98;
}

/* linux/sched.h: struct clone_args of the first version. */
struct arguments {
    unsigned long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

/* The child starts on another stack, so it must not return from a function. */
static pid_t clone3(unsigned long flags, char *turns) {
    struct arguments arguments = {
        .flags = flags, .exit_signal = SIGCHLD, .stack = (unsigned long)stack, .stack_size = sizeof stack};
    long result;
    register char *given __asm__("r12") = turns;
    register int (*run)(void *) __asm__("r13") = become;
    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "mov %%r12, %%rdi\n"
                     "call *%%r13\n"
                     "mov %%eax, %%edi\n"
                     "mov %[exit], %%eax\n"
                     "syscall\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(&arguments), "S"(sizeof arguments), "r"(given), "r"(run),
                       [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return result;
}

static int status_of(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 100;
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    pid_t child;
    self = argv[0];
    if (argc < 3) return 99;
    if (!strcmp(argv[1], "fork")) {
        if ((child = fork()) == 0) {
            spin(atoi(argv[2]));
            _exit(3);
        }
        spin(4);
        return status_of(child) + 1;
    }
    if (!strcmp(argv[1], "after")) {
        volatile int *ready = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        for (int n = 0; n < 16; n++) {
            if (fork() != 0) continue;
            while (!*ready) sched_yield();
            usleep(20 * n);
            spin(atoi(argv[2]));
            _exit(3);
        }
        *ready = 1;
        spin(4);
        while (wait(0) > 0) continue;
        return 4;
    }
    if (!strcmp(argv[1], "vfork")) {
        if ((child = vfork()) == 0) {
            execl(self, self, "spin", argv[2], (char *)0);
            _exit(98);
        }
        spin(4);
        return status_of(child) + 1;
    }
    if (!strcmp(argv[1], "clone") || !strcmp(argv[1], "clone3") || !strcmp(argv[1], "clone3-fork")) {
        if (!strcmp(argv[1], "clone"))
            /* An address without the bit of CLONE_VM. */
            child = clone(become, stack + sizeof stack - 256, CLONE_VM | CLONE_VFORK | SIGCHLD, argv[2]);
        else
            child = clone3(argv[1][6] ? 0 : CLONE_VM | CLONE_VFORK, argv[2]);
        /* Before Linux 5.3, or forbidden. */
        if (child < 0) return 77;
        spin(4);
        return status_of(child) + 1;
    }
    if (!strcmp(argv[1], "exec")) {
        spin(4);
        execl(self, self, "spin", argv[2], (char *)0);
        return 98;
    }
    if (!strcmp(argv[1], "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, replace, 0);
        pthread_join(thread, 0);
        return 97;
    }
    if (!strcmp(argv[1], "stop")) {
        int status;
        if ((child = fork()) == 0) {
            raise(SIGSTOP);
            spin(atoi(argv[2]));
            _exit(3);
        }
        waitpid(child, &status, WUNTRACED);
        if (!WIFSTOPPED(status)) return 96;
        spin(4);
        kill(child, SIGCONT);
        return status_of(child) + 1;
    }
    if (!strcmp(argv[1], "cpus")) return cpus() * 16 + sched_getcpu();
    if (!strcmp(argv[1], "child-cpus")) {
        if ((child = fork()) == 0) _exit(cpus());
        return status_of(child);
    }
    if (!strcmp(argv[1], "sleep")) sleep(atoi(argv[2]));
    spin(atoi(argv[2]));
    return 3;
}
