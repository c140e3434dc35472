/* Dies in the way that its argument names. flags: -O1 -g -pthread -fno-stack-protector -Wno-all */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*function)(int);
static function volatile pointer;
static volatile int zero;
static char *volatile nowhere;

__attribute__((noinline)) static int add(int x) { return x + 1; }
__attribute__((noinline)) static int through(int x) { return pointer(x) + 1; }
__attribute__((noinline)) static void fill(unsigned long *words, int count, unsigned long value) {
    for (int i = 0; i < count; i++) words[i] = value;
}
__attribute__((noinline)) static int smash(int count, unsigned long value) {
    volatile unsigned long room[2] = {1, 2};
    fill((unsigned long *)room, count, value);
    return room[0] != 0;
}
__attribute__((noinline)) static int deep(int x) {
    volatile char room[4096];
    room[0] = x;
    return x < 0 ? room[0] : deep(x + 1) + room[0];
}
__attribute__((noinline)) static int divide(int x) { return x / zero; }
__attribute__((noinline)) static void store(void) { *nowhere = 1; }
static int compare(const void *a, const void *b) {
    if (*(int *)a == 7) abort();
    return *(int *)a - *(int *)b;
}
static void *thread(void *unused) { store(); return unused; }
static void *waits(void *unused) { pause(); return unused; }
static void handler(int signal) { store(); }

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    int numbers[] = {3, 9, 7, 1};
    pthread_t id;
    if (add(argc) < 0) return 1;
    if (!strcmp(way, "null")) return through(argc);
    if (!strcmp(way, "dangling")) {
        char *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pointer = (function)(code + 16);
        munmap(code, 4096);
        return through(argc);
    }
    if (!strcmp(way, "stack")) {
        char code[16] = {(char)0xc3};
        pointer = (function)code;
        return through(argc);
    }
    if (!strcmp(way, "smash")) return smash(16, 0x4141414141414141);
    if (!strcmp(way, "overrun")) return smash(16, 0x1000);
    if (!strcmp(way, "abort")) qsort(numbers, 4, sizeof *numbers, compare);
    if (!strcmp(way, "overflow")) return deep(argc);
    if (!strcmp(way, "divide")) return divide(argc);
    if (!strcmp(way, "ud2")) __builtin_trap();
    if (!strcmp(way, "code")) nowhere = (char *)add, store();
    if (!strcmp(way, "thread")) {
        pthread_t other;
        pthread_create(&other, 0, waits, 0);
        pthread_create(&id, 0, thread, 0);
        pthread_join(id, 0);
    }
    if (!strcmp(way, "handler")) signal(SIGUSR1, handler), raise(SIGUSR1);
    if (!strcmp(way, "exec")) execl(argv[0], argv[0], "null", (char *)0);
    if (!strcmp(way, "child")) {
        int status = 0;
        if (!fork()) store();
        wait(&status);
        return WTERMSIG(status);
    }
    if (!strcmp(way, "killed")) kill(getpid(), SIGKILL);
    return 0;
}
