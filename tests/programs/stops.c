/* Gets the signal that its argument names, at labels and with values that are known. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void registers(void);
void divides(void);
void protects(void);
__asm__(".text\n"
        "registers: mov $1, %eax\n"
        "           mov $2, %ebx\n"
        "           mov $3, %ecx\n"
        "           mov $4, %edx\n"
        "           mov $5, %esi\n"
        "           mov $6, %edi\n"
        "           mov $7, %ebp\n"
        "           mov $8, %esp\n"
        "           mov $9, %r8d\n"
        "           mov $10, %r9d\n"
        "           mov $11, %r10d\n"
        "           mov $12, %r11d\n"
        "           mov $13, %r12d\n"
        "           mov $14, %r13d\n"
        "           mov $15, %r14d\n"
        "           mov $16, %r15d\n"
        "           stc\n"
        "ill_i:     ud2\n"
        "divides:   xor %eax, %eax\n"
        "           xor %edx, %edx\n"
        "           xor %ecx, %ecx\n"
        "fpe_i:     div %ecx\n"
        "protects:  hlt\n");

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "segv")) *(volatile char *)0x123 = 1;
    if (!strcmp(way, "bus")) {
        /* A page of a file that has none. */
        char *page = mmap((void *)0x20000000, 4096, PROT_READ, MAP_SHARED | MAP_FIXED,
                          memfd_create("empty", 0), 0);
        return *(volatile char *)(page + 0x45);
    }
    if (!strcmp(way, "ill")) registers();
    if (!strcmp(way, "fpe")) divides();
    if (!strcmp(way, "hlt")) protects();
    if (!strcmp(way, "kill")) kill(getpid(), SIGTERM);
    if (!strcmp(way, "tgkill")) syscall(SYS_tgkill, getpid(), getpid(), SIGUSR2);
    if (!strcmp(way, "queue")) sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1});
    if (!strcmp(way, "bus-sent")) kill(getpid(), SIGBUS);
    if (!strcmp(way, "pipe")) {
        int pipes[2];
        if (pipe(pipes)) return 98;
        close(pipes[0]);
        write(pipes[1], "x", 1);
    }
    return 99;
}
