/* flags: -O1 -pthread : each thread has work of its own, and the last one still waits when the program ends */
#include <pthread.h>
#include <stdlib.h>
static volatile int sums[3];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static void *work(void *at) {
    for (int i = 0; i < 20; i++) if (i % ((long)at + 2)) sums[(long)at] += i;
    if (at != (void *)2) return 0;
    pthread_mutex_lock(&lock);
    pthread_cond_signal(&done);
    for (;;) pthread_cond_wait(&never, &lock);
}
int main(void) {
    pthread_t threads[3];
    pthread_mutex_lock(&lock);
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    /* The last thread has released the lock: it waits. */
    pthread_cond_wait(&done, &lock);
    exit(sums[0] != 100);
}
