/* Threads with names of their own: each spins its own number of turns. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include "spin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;

static void *work(void *turns) {
    pthread_setname_np(pthread_self(), turns == (void *)10 ? "ten" : "twenty");
    pthread_mutex_lock(&lock);
    spin((int)(long)turns);
    done++;
    pthread_mutex_unlock(&lock);
    return turns;
}

int main(void) {
    pthread_t a, b;
    void *x, *y;
    pthread_create(&a, 0, work, (void *)10);
    pthread_create(&b, 0, work, (void *)20);
    pthread_join(a, &x);
    pthread_join(b, &y);
    spin(5);
    return done == 2 && (long)x + (long)y == 30 ? 0 : 1;
}
