// Dies in a call of address 0. Before that: 40 taken branches of a loop and a call.
    .globl _start
    .globl around
    .globl back
    .globl outer
    .globl through
    .globl last
_start:
    mov $41, %ecx
around:
    dec %ecx
back:
    jnz around
outer:
    call through
    hlt
through:
    xor %eax, %eax
last:
    call *%rax
    hlt
