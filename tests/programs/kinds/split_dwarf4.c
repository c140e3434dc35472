/* flags: -O2 -g -gdwarf-4 -gsplit-dwarf */
static __attribute__((noinline)) int collatz(int n) { int steps = 0; while (n != 1) n = n % 2 ? 3 * n + 1 : n / 2, steps++; return steps; }
int main(void) { int sum = 0; for (int i = 1; i < 12; i++) if (i != 7) sum += collatz(i); return sum != 77; }
