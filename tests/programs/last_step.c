/* The last steps of each thread that a signal kills.
   usage: last_step ADDRESS PROGRAM [ARGUMENT...]
   It steps from ADDRESS on (0: the entry), which is hexadecimal.
   For each: a line "thread SIGNAL", then FROM TO BYTES of its last steps, newest first: BYTES are
   the 16 at FROM when it dies, all hexadecimal. */
#include "stepping.h"

enum { STEPS = 512 };
static struct {
    int signal;
    unsigned long count;
    struct { unsigned long from, to; } steps[STEPS];
} threads[TASKS];

static void stepped(int task, unsigned long from, unsigned long to) {
    unsigned long next = threads[task].count++ % STEPS;
    threads[task].steps[next].from = from, threads[task].steps[next].to = to;
}

static void signalled(int task, int signal) { threads[task].signal = signal; }

static void ended(int task, pid_t id, unsigned long from, int status) {
    unsigned long count = threads[task].count;
    threads[task].count = 0;
    if (!WIFSIGNALED(status) || threads[task].signal != WTERMSIG(status)) return;
    printf("thread %d\n", WTERMSIG(status));
    for (unsigned long i = 1; i <= STEPS && i <= count; i++) {
        unsigned long at = (count - i) % STEPS, from = threads[task].steps[at].from;
        printf("%lx %lx ", from, threads[task].steps[at].to);
        for (int word = 0; word < 2; word++) {
            unsigned long code = ptrace(PTRACE_PEEKTEXT, id, from + 8 * word, 0);
            for (int b = 0; b < 8; b++) printf("%02lx", code >> b * 8 & 255);
        }
        printf("\n");
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    first_step = strtoul(argv[1], 0, 16);
    step_program(argv + 2, 2);
    return 0;
}
