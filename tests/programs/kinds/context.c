/* flags: -O1 : coroutines by swapcontext */
#include <ucontext.h>
static ucontext_t here, there;
static volatile int turns;
static void other(void) { for (;;) { if (turns % 2) turns += 2; turns++; swapcontext(&there, &here); } }
static char stack[65536];
int main(void) {
    getcontext(&there);
    there.uc_stack.ss_sp = stack, there.uc_stack.ss_size = sizeof stack;
    makecontext(&there, other, 0);
    while (turns < 9) swapcontext(&here, &there);
    return turns != 10;
}
