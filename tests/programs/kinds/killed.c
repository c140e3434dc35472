/* flags: -O1 : ends in the middle, by a signal */
#include <signal.h>
#include <unistd.h>
int main(void) {
    volatile int turns = 0;
    for (int i = 0; i < 9; i++) {
        if (i % 4 == 1) turns++;
        if (turns == 2) { if (i > 2) *(volatile int *)0 = i; turns = 9; }
    }
    return 0;
}
