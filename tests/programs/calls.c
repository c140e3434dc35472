/* Calls through pointers, a switch, recursion, inlined code, a library function
   that calls back: calls [ROUNDS]. */
#include <stdio.h>
#include <stdlib.h>

typedef unsigned (*step)(unsigned);

static inline unsigned mix(unsigned x) { return x * 2654435761u ^ x >> 13; }

__attribute__((noinline)) static unsigned one(unsigned x) { return x & 1 ? mix(x) : x / 3 + 1; }

__attribute__((noinline)) static unsigned two(unsigned x) {
    unsigned n = 0;
    while (x > 1) {
        x = x % 5 ? x / 2 : x - 1;
        n++;
    }
    return n + 7;
}

__attribute__((noinline)) static unsigned three(unsigned x) {
    return x < 3 ? x : three(x / 3) + one(x);
}

__attribute__((noinline)) static unsigned pick(unsigned x) {
    switch (x % 11) {
    case 0: return one(x);
    case 1: return 4;
    case 2: return two(x);
    case 3: return x + 9;
    case 4: return three(x);
    case 5: return 1;
    case 6: return mix(x);
    case 7: return two(x / 2);
    default: return x;
    }
}

static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(int argc, char **argv) {
    step steps[] = {one, two, three, pick};
    int rounds = argc > 1 ? atoi(argv[1]) : 300, numbers[300];
    unsigned x = 12345, sum = 0;
    for (int i = 0; i < rounds; i++) {
        x = mix(x + i);
        sum += steps[x >> 7 & 3](x) + pick(x >> 3);
    }
    for (int i = 0; i < 300; i++)
        numbers[i] = (x = mix(x + i)) % 1000;
    qsort(numbers, 300, sizeof *numbers, order);
    printf("%u %d\n", sum, numbers[17]);
    return 0;
}
