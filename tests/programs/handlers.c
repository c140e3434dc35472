/* Ten rounds, each interrupted by a signal whose handler makes three. */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int made;

__attribute__((noinline)) void on_signal(int signal)
{
    (void)signal;
    for (volatile int i = 0; i < 3; i++)
        made++;
}

__attribute__((noinline)) void work(long pid)
{
    for (int i = 0; i < 10; i++) {
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_kill), "D"(pid), "S"(SIGUSR1)
                         : "rcx", "r11", "memory");
        made += result;
    }
}

int main(void)
{
    signal(SIGUSR1, on_signal);
    work(getpid());
    return made != 30;
}
