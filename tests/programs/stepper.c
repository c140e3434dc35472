/* Counts how often each instruction of a program is followed by which other.
   usage: stepper OUTPUT PROGRAM [ARGUMENT...]
   Lines of OUTPUT: FROM TO COUNT, hexadecimal but for the count; TO is 0 where
   the thread ended. Transfers by the kernel (signals) are no lines. */
#include "stepping.h"

enum { SLOTS = 1 << 20 };
static struct { unsigned long from, to, count; } pairs[SLOTS];

static void stepped(int task, unsigned long from, unsigned long to) {
    unsigned long slot = (from * 31 + to) * 0x9e3779b97f4a7c15ul >> 44;
    while (pairs[slot].count && (pairs[slot].from != from || pairs[slot].to != to))
        slot = (slot + 1) % SLOTS;
    pairs[slot].from = from, pairs[slot].to = to, pairs[slot].count++;
}

static void signalled(int task, int signal) {}

static void ended(int task, pid_t id, unsigned long from, int status) {
    if (from) stepped(task, from, 0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    step_program(argv + 2, 1);
    FILE *out = fopen(argv[1], "w");
    if (!out) return 2;
    for (int i = 0; i < SLOTS; i++)
        if (pairs[i].count)
            fprintf(out, "%lx %lx %lu\n", pairs[i].from, pairs[i].to, pairs[i].count);
    return fclose(out) != 0;
}
