/* Signals that arrive between any two branches. Exits with 0 when it has
   counted every turn, whatever the timer did. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

int turns(int (*step)(int), int n);
/* Each turn takes turn_c to step, step_r back, and turn_b (but for the last). */
__asm__(".text\n"
        ".type turns, @function\n"
        "turns:   push %rbx\n"
        "         push %rbp\n"
        "         push %r12\n"
        "         mov %rdi, %rbx\n"
        "         mov %esi, %ebp\n"
        "         xor %eax, %eax\n"
        "turn:    mov %eax, %edi\n"
        "turn_c:  call *%rbx\n"
        "turn_n:  dec %ebp\n"
        "turn_b:  jnz turn\n"
        "         pop %r12\n"
        "         pop %rbp\n"
        "         pop %rbx\n"
        "         ret\n"
        ".type step, @function\n"
        "step:    lea 1(%rdi), %eax\n"
        "step_r:  ret\n");
int step(int n);

static volatile int alarms;
void on_alarm(int s) {
    alarms++;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    int counted = turns(step, n);
    setitimer(ITIMER_REAL, &never, 0);
    return counted == n && alarms > 0 ? 0 : 1;
}
