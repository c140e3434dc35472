/* flags: -O1 */
#include <signal.h>
#include <unistd.h>
static volatile int hits, odd, nested;
static void inner(int s) { nested += hits > 2; }
static void on(int s) { if (++hits & 1) odd++; if (hits % 4 == 0) raise(SIGUSR2); }
int main(void) {
    volatile int turns = 0;
    signal(SIGUSR1, on), signal(SIGUSR2, inner);
    for (int i = 0; i < 10; i++) {
        if (i % 2) turns += i;
        kill(getpid(), SIGUSR1);
        if (i % 3 == 0) turns -= i;
    }
    return hits != 10 || odd != 5 || nested != 2;
}
