# 1,000 rounds of a linear congruential generator decide every branch:
#   bit 16        the jump at b_bit is taken where it is clear
#   bits 20, 21   the case that b_switch jumps to; case 2 falls into case 3
#   bit 24        the function that b_call calls
#   bit 13        the jump at b_f1 is taken where it is set
# A test that knows the generator knows every count.
        .globl _start
        .text
_start:
        mov     $12345, %eax
        mov     $1000, %ecx
        lea     cases(%rip), %r8
        lea     functions(%rip), %r9
b_start: jmp    top
top:    imul    $1103515245, %eax, %eax
        add     $12345, %eax
        test    $0x10000, %eax
b_bit:  jz      skip
l_bit:  nop
skip:   mov     %eax, %edx
        shr     $20, %edx
        and     $3, %edx
b_switch: jmp   *(%r8,%rdx,8)
case0:  nop
b_case0: jmp    join
case1:  nop
        nop
b_case1: jmp    join
case2:  nop
case3:  nop
join:   mov     %eax, %edx
        shr     $24, %edx
        and     $1, %edx
b_call: call    *(%r9,%rdx,8)
back:   dec     %ecx
b_loop: jnz     top
l_exit: mov     $60, %eax
        xor     %edi, %edi
b_exit: syscall
f0:     nop
b_ret0: ret
f1:     test    $0x2000, %eax
b_f1:   jnz     f1_end
l_f1:   nop
f1_end: nop
b_ret1: ret

        .data
cases:  .quad   case0, case1, case2, case3
functions: .quad f0, f1
        .section .note.GNU-stack,"",@progbits
