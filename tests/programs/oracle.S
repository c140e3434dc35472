# A program whose taken branches are known by hand: ptrace_oracle.rs lists
# them by these labels. Exit status 7.
        .globl _start
        .text
_start:
        # 1. A loop: taken twice, then falls through.
        mov     $3, %ecx
loop:   dec     %ecx
loop_b: jnz     loop
        # 2. A call chain.
outer_c: call   outer
outer_r:
        # 3. An indirect jump and an indirect call.
        lea     landing(%rip), %rax
ind_j:  jmp     *%rax
        ud2
landing:
        lea     leaf(%rip), %rax
ind_c:  call    *%rax
ind_r:
        # 4. String instructions repeat their own address: no branches.
        lea     buffer(%rip), %rdi
        mov     $5, %ecx
        xor     %eax, %eax
        rep stosb
        lea     buffer(%rip), %rsi
        lea     buffer+8(%rip), %rdi
        mov     $5, %ecx
        rep movsb
        # 5. A call of the next instruction.
zero_c: call    zero
zero:   pop     %rax
        # 6. Conditional branches to the next instruction: only the address
        #    of the flags tells whether they are taken.
        xor     %eax, %eax
next_t: .byte   0x74, 0         # jz, taken
next_1:
next_f: .byte   0x75, 0         # jnz, not taken
next_2: mov     $1, %ecx
next_l: .byte   0xe2, 0         # loop, count becomes 0: not taken
next_3: mov     $2, %ecx
next_m: .byte   0xe2, 0         # loop, count becomes 1: taken
next_4: xor     %ecx, %ecx
next_z: .byte   0xe3, 0         # jrcxz, taken
next_5:
        # 7. PUSHF and POPF, and MOV SS before a branch: single-step's own
        #    trouble.
        pushfq
        testl   $0x100, (%rsp)
trap_b: jnz     fail
        popfq
        mov     %ss, %eax
        mov     %eax, %ss
ss_j:   jmp     ss_l
        ud2
ss_l:
        # 8. System calls: a branch into the kernel; R11 has RFLAGS.
        mov     $39, %eax       # getpid
sys_1:  syscall
        test    $0x100, %r11
r11_b:  jnz     fail
        # 9. Out.
        mov     $60, %eax
        mov     $7, %edi
sys_2:  syscall
fail:   mov     $60, %eax
        mov     $1, %edi
sys_f:  syscall

outer:
inner_c: call   leaf
inner_r: jmp    1f
        ud2
1:
outer_ret: ret
leaf:
leaf_ret: ret
        .globl  tail
tail:

        .bss
buffer: .skip   16
        .section .note.GNU-stack,"",@progbits
