/* A mixture of work to measure by: recursion, sorting, a switch in a loop. */
#include <stdio.h>
#include <stdlib.h>

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static int values[300000];

int main(void) {
    unsigned seed = 1;
    volatile unsigned x = 0;
    for (int i = 0; i < 300000; i++) {
        seed = seed * 1103515245 + 12345;
        values[i] = (int)(seed >> 8);
    }
    qsort(values, 300000, sizeof *values, compare);
    for (unsigned i = 0; i < 20000000; i++) {
        switch (i * 2654435761u >> 29) {
        case 0: x += 1; break;
        case 1: x ^= 3; break;
        case 2: x -= 7; break;
        case 3: x *= 3; break;
        case 4: x |= 1; break;
        case 5: x += 9; break;
        default: x ^= i;
        }
    }
    return fib(33) == 3524578 && values[0] <= values[1] ? 0 : 1;
}
