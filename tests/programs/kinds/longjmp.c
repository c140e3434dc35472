/* flags: -O1 */
#include <setjmp.h>
static jmp_buf back;
static void deep(int n) { if (n > 4) longjmp(back, n); deep(n + 1); }
int main(void) {
    volatile int rounds = 0;
    if (setjmp(back) && ++rounds == 6) return 0;
    deep(rounds);
    return 1;
}
