/* flags: -O1 */
#include <setjmp.h>
#include <signal.h>
static sigjmp_buf back;
static volatile int faults;
static int *volatile nowhere;
static void on_fault(int s) { if (++faults) siglongjmp(back, 1); }
static void on_user(int s) { siglongjmp(back, 2); }
int main(void) {
    volatile int rounds = 0;
    signal(SIGSEGV, on_fault), signal(SIGUSR1, on_user);
    if (sigsetjmp(back, 1) && ++rounds == 6) return faults != 3;
    if (rounds % 2) raise(SIGUSR1);
    if (rounds != 9) *nowhere = 1;
    return 1;
}
