# A position-independent program that writes the address of its loop's branch
# to standard output, eight bytes, and then loops.
    .globl _start
_start:
    lea branch(%rip), %rax
    push %rax
    mov $1, %eax
    mov $1, %edi
    mov %rsp, %rsi
    mov $8, %edx
    syscall
around:
    dec %rbx
branch:
    jmp around
