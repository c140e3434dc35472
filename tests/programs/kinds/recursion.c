/* flags: -O1 -fno-optimize-sibling-calls */
static __attribute__((noinline)) int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
int main(void) { return ackermann(2, 3) != 9; }
