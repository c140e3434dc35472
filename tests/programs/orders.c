/* Picks the large ones of random orders: half of them, in no order that a
   branch predictor could learn. README's pictures show what that costs. */
#include <stdio.h>

enum { ORDERS = 20000, ROUNDS = 10 };
static unsigned amounts[ORDERS], large[ORDERS];

__attribute__((noinline)) static unsigned pick(void) {
    unsigned found = 0;
    for (unsigned i = 0; i < ORDERS; i++)
        if (amounts[i] >= 500)
            large[found++] = amounts[i];
    return found;
}

__attribute__((noinline)) static unsigned total(unsigned count) {
    unsigned sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += large[i];
    return sum;
}

int main(void) {
    unsigned state = 1, sum = 0;
    for (unsigned i = 0; i < ORDERS; i++) {
        state = state * 1664525 + 1013904223;
        amounts[i] = (state >> 16) % 1000;
    }
    for (unsigned round = 0; round < ROUNDS; round++)
        sum += total(pick());
    printf("%u\n", sum);
}
