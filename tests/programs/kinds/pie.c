/* flags: -O2 -pie -fPIE : a switch by a table of distances, and tail calls */
__attribute__((noinline)) static int last(volatile int *n) { return *n; }
__attribute__((noinline)) static int step(int i, volatile int *n) {
    switch (i % 7) {
    case 0: *n += 1; break;
    case 1: *n -= 2; break;
    case 2: *n *= 3; break;
    case 3: *n ^= 5; break;
    case 4: *n |= 1; break;
    case 5: return 0;
    default: *n += 7;
    }
    return last(n);
}
int main(void) { volatile int n = 1; int sum = 0; for (int i = 0; i < 15; i++) sum += step(i, &n) > 0; return sum == 99; }
