# Exactly 1,000,003 taken branches that user-mode QEMU can see, and one that it
# cannot; qemu.rs lists them by these labels. Exit status 42.
        .globl _start
        .text
_start: mov     $1000000, %ecx
turn:   dec     %ecx
turn_b: jnz     turn            # taken 999,999 times
zero_c: call    zero            # taken, to the next instruction
zero:   pop     %rax
        lea     buffer(%rip), %rdi
        mov     $1000, %ecx
        xor     %eax, %eax
        rep stosb               # repeats its own address: no branch
        xor     %eax, %eax
next_b: .byte   0x74, 0         # jz, taken, to the next instruction: invisible
next:   jnz     fail            # not taken
jump_b: jmp     over            # taken
        ud2
over:   lea     ahead(%rip), %rax
ind_b:  jmp     *%rax           # taken
        ud2
ahead:  lea     back(%rip), %rax
        push    %rax
ret_b:  ret                     # taken
        ud2
back:   mov     $39, %eax       # getpid
        syscall
        mov     $60, %eax
        mov     $42, %edi
        syscall
fail:   ud2

        .bss
buffer: .skip   1000
        .section .note.GNU-stack,"",@progbits
