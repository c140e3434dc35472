/* flags: -O1 -pthread : each thread has work of its own, and the last one ends the program */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int sums[3];
static void *work(void *at) {
    for (int i = 0; i < 20; i++) if (i % ((long)at + 2)) sums[(long)at] += i;
    if (at == (void *)2) for (;;) pause();
    return 0;
}
int main(void) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    exit(sums[0] != 100);
}
