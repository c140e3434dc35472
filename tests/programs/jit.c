/* Code that changes while it runs, in a page at a known address. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((unsigned char *)0x20000000)

/* 0: mov $N, %ecx  5: dec %ecx  7: jnz 5  9: ret */
static const unsigned char down[] = {0xb9, 3, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
/* 0: jmp 7  2: ud2 ...  7: jmp 9  9: ret */
static const unsigned char over[] = {0xeb, 5, 0x0f, 0x0b, 0x0f, 0x0b, 0x90, 0xeb, 0, 0xc3};

/* Pages that were never writable and executable at once. */
static int in_turns(unsigned char *page) {
    void (*run)(void) = (void (*)(void))page;
    if (mmap(page, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
        return 1;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    memcpy(page, down, sizeof down);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    run();
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    memcpy(page, over, sizeof over);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    run();
    return 0;
}

/* libc calls mprotect for a page without a key; some kernels have no keys. */
static void protect(void *page, int rights) {
    if (syscall(SYS_pkey_mprotect, page, 4096, rights, -1)) mprotect(page, 4096, rights);
}

/* A page whose code other system calls than mprotect replace. */
static int replaced(unsigned char *page) {
    void (*run)(void) = (void (*)(void))page;
    int file = memfd_create("code", 0);
    unsigned char *other = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || ftruncate(file, 4096) || pwrite(file, down, sizeof down, 0) != sizeof down) return 1;
    mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
    memcpy(page, over, sizeof over);
    memcpy(other, over, sizeof over);
    mprotect(other, 4096, PROT_READ | PROT_EXEC);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    run();
    /* Drops the copy: the file's code is there again. */
    madvise(page, 4096, MADV_DONTNEED);
    run();
    if (mremap(other, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) != page) return 2;
    run();
    protect(page, PROT_READ | PROT_WRITE);
    memcpy(page, down, sizeof down);
    protect(page, PROT_READ | PROT_EXEC);
    run();
    return 0;
}

int main(void) {
    if (in_turns(PAGE + 0x1000) || replaced(PAGE + 0x3000)) return 1;
    void *page = mmap(PAGE, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (page != PAGE) return 1;
    void (*run)(void) = (void (*)(void))page;
    memcpy(page, down, sizeof down);
    run();
    memcpy(page, over, sizeof over);
    run();
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    run();
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    memcpy(page, down, sizeof down);
    PAGE[1] = 2;
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    run();
    return 0;
}
