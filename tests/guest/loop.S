// A known loop: one branch, far more often than any test waits.
    .globl _start
    .globl around
_start:
    mov $1000000000000, %rcx
around:
    dec %rcx        // three bytes: the branch stands at around + 3
    jnz around
    mov $60, %eax   // exit(0), by a system call alone
    xor %edi, %edi
    syscall
