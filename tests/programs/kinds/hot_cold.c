/* flags: -O2 -freorder-blocks-and-partition */
#include <stdlib.h>
static volatile int faults;
__attribute__((cold, noinline)) static void report(int n) { faults += n; }
__attribute__((noinline)) static int check(int n) {
    if (__builtin_expect(n % 5 == 4, 0)) { report(n); if (n > 100) abort(); return -1; }
    return n * 2;
}
int main(void) { int sum = 0; for (int i = 0; i < 20; i++) sum += check(i); return sum != 296 || faults != 46; }
