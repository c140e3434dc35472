/* Children: children fork|after|vfork|exec|thread|stop|cpus|child-cpus|sleep|spin N. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
