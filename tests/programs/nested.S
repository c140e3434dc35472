# Nested calls and a recursion, for call stacks.
        .globl _start
        .text
_start:
start_c: call   a
start_r: mov    $3, %edi
start_d: call   down
start_s: mov    $60, %eax
        xor     %edi, %edi
        syscall
a:
a_c:    call    b
a_r:    ret
b:
b_c1:   call    c
b_r1:   nop
b_c2:   call    c
b_r2:   ret
c:      nop
c_r:    ret
# down(n): calls itself n times.
down:   dec     %edi
down_b: js      down_r
down_c: call    down
down_r: ret
        .section .note.GNU-stack,"",@progbits
