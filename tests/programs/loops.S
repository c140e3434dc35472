# Loops whose trip counts are known: NAME_h is the head, NAME_b the branch back.
# Each is entered 3 times by the loop `main`, which is entered once, and left
# into code that takes a branch, so that every exit has a record behind it.
        .globl _start
        .text
_start:
        mov     $3, %ebp
        jmp     main_h

# N trips, tested at the bottom.
        .macro  bottom name, trips
        mov     $\trips, %ecx
\name\()_h: dec %ecx
\name\()_b: jnz \name\()_h
        .endm

# N trips, tested at the top.
        .macro  top name, trips
        mov     $\trips, %ecx
\name\()_h: dec %ecx
\name\()_t: js  \name\()_x
        nop
\name\()_b: jmp \name\()_h
\name\()_x: nop
        .endm

# N trips, entered at the test below the body.
        .macro  turned name, trips
        mov     $\trips, %ecx
\name\()_e: jmp \name\()_h
\name\()_l: nop
\name\()_h: dec %ecx
\name\()_b: jns \name\()_l
        .endm

main_h: bottom  b1, 1
        bottom  b2, 2
        bottom  b7, 7
        bottom  b31, 31
        bottom  b32, 32
        bottom  b33, 33
        bottom  b1000, 1000
        top     t0, 0
        top     t1, 1
        top     t7, 7
        top     t33, 33
        turned  r0, 0
        turned  r1, 1
        turned  r7, 7
        turned  r33, 33

# 5 rounds outside, in round i (5 down to 1) i inside.
        mov     $5, %edx
outer_h: mov    %edx, %ecx
inner_h: dec    %ecx
inner_b: jnz    inner_h
        dec     %edx
outer_b: jnz    outer_h

# 100 rounds unless %ebp (3, 2, 1) says that it ends in the 10th, 20th, 30th:
# the 40 - 10 * %ebp th.
        imul    $10, %ebp, %eax
        neg     %eax
        add     $40, %eax
        mov     $100, %ecx
early_h: nop
        jmp     1f
1:      dec     %eax
early_x: jz     early_o
        dec     %ecx
early_b: jnz    early_h
early_o: nop

# 6 rounds, each with a call; the callee has a loop of 4.
        mov     $6, %edx
calls_h: call   callee
        dec     %edx
calls_b: jnz    calls_h

# 8 rounds; the odd ones go on in the middle.
        mov     $8, %ecx
cont_h: dec     %ecx
        js      cont_x
        test    $1, %ecx
cont_c: jnz     cont_h
        nop
cont_b: jmp     cont_h
cont_x: nop

# 9 rounds round an indirect jump with three targets.
        mov     $9, %ecx
        mov     $0, %edx
        lea     cases(%rip), %r8
ind_h:  jmp     *(%r8,%rdx,8)
case0:  inc     %edx
        jmp     ind_j
case1:  inc     %edx
        jmp     ind_j
case2:  mov     $0, %edx
ind_j:  dec     %ecx
ind_b:  jnz     ind_h

# A recursion: no loop.
        mov     $12, %edi
        call    down

        dec     %ebp
main_b: jnz     main_n
        jmp     done
main_n: jmp     main_h
done:   call    last
        mov     $60, %eax
        xor     %edi, %edi
        syscall

callee: mov     $4, %ecx
leaf_h: dec     %ecx
leaf_b: jnz     leaf_h
        ret
down:   dec     %edi
        js      down_r
        call    down
down_r: ret
last:   ret
        .data
cases:  .quad   case0, case1, case2
        .section .note.GNU-stack,"",@progbits
