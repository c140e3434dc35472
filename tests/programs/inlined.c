/* Tests name lines of this file by number: a line more or less here is one
   there. The labels stand in the middle of what they are named after. */
#define MARK(name) __asm__ volatile(".globl " #name "\n" #name ": nop" : "+r"(x))

int step(int x);

static inline __attribute__((always_inline)) int inner(int x) {
    x += 3;
    MARK(in_inner); /* line 9 */
    return x * 5;
}

static inline __attribute__((always_inline)) int middle(int x) {
    x ^= 0x55;
    MARK(in_middle);     /* line 15 */
    return inner(x) + 1; /* line 16 */
}

__attribute__((noinline)) int step(int x) {
    MARK(in_step); /* line 20 */
    if (x & 1)
        x = middle(x); /* line 22 */
    return x;
}

int main(int argc, char **argv) {
    int x = argc;
    (void)argv;
    for (int i = 0; i < 100; i++)
        x = step(x) + i; /* line 30 */
    MARK(in_main);       /* line 31 */
    return x & 1;
}
