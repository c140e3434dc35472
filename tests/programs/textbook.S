# The loop of the easyperf article on LBR, at the addresses it has there
# (linked with .text at 0x4ed000): JNS is taken for elements that are not
# negative, CALL goes to a leaf, JNE goes back while elements are left.
# -DELEMENTS=3,9,-4 gives it other elements.
#ifndef ELEMENTS
#define ELEMENTS 5, -1, -7, 12, 0
#endif
        .globl _start
        .text
_start:
        lea     array(%rip), %rbx
        lea     array_end(%rip), %rbp
        jmp     loop
        .org    0xa10
loop:   mov     (%rbx), %edi
        test    %edi, %edi
        jns     1f              # 4eda14
        mov     %edi, %eax
        shl     $7, %eax
        lea     (%rax,%rdi,8), %edi
1:      call    leaf            # 4eda1e
        add     $4, %rbx
        mov     %eax, -4(%rbx)
        cmp     %rbp, %rbx
        jne     loop            # 4eda2d
        .size   loop, .-loop
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        .org    0xb26
leaf:   lea     1(%rdi), %eax
        ret                     # 4edb29
        .size   leaf, .-leaf

        .data
array:  .long   ELEMENTS
array_end:
        .section .note.GNU-stack,"",@progbits
