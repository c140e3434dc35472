/* flags: -O1 : a system call that a handler interrupts, restarted or not */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
static int pipes[2];
static volatile int alarms;
static void on(int s) { if (++alarms == 2) write(pipes[1], "x", 1); }
int main(void) {
    char c;
    struct itimerval often = {{1, 0}, {1, 0}}, never = {{0}};
    struct sigaction action = {.sa_handler = on};
    if (pipe(pipes)) return 1;
    sigaction(SIGALRM, &action, 0), setitimer(ITIMER_REAL, &often, 0);
    if (read(pipes[0], &c, 1) != -1 || errno != EINTR) return 2;
    action.sa_flags = SA_RESTART, sigaction(SIGALRM, &action, 0);
    if (read(pipes[0], &c, 1) != 1) return 3;
    setitimer(ITIMER_REAL, &never, 0);
    return 0;
}
