/* Preloaded: a wait for input that takes its time, so that the terminal can go away before it. */
#include <sys/epoll.h>
#include <unistd.h>

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    usleep(300000);
    return epoll_pwait(fd, events, most, timeout, 0);
}
