# Calls of every kind. Functions have types and sizes; other labels are local.
#   main calls work twice, deep once, tail once, jumps once, zero once
        .globl _start
        .text
        .macro  function name
        .type   \name, @function
\name:
        .endm
        .macro  end name
        .size   \name, . - \name
        .endm

        function _start
        call    main
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        end     _start

        function main
        call    work
        call    work
        mov     $40, %edi
        call    deep
        call    tail
        call    jumps
        call    zero
        ret
        end     main

# Calls leaf directly and through a pointer.
        function work
        call    leaf
        lea     leaf(%rip), %rax
        call    *%rax
        ret
        end     work

        function leaf
        nop
        ret
        end     leaf

# Calls itself 40 times, then leaf.
        function deep
        dec     %edi
        js      .Lbottom
        call    deep
        ret
.Lbottom: call  leaf
        ret
        end     deep

# Goes on in target without coming back.
        function tail
        nop
        jmp     target
        end     tail

        function target
        call    leaf
        ret
        end     target

# Saves where it stands; raise goes back there past thrower.
        function jumps
        mov     %rsp, %r12
        lea     .Llanding(%rip), %r13
        call    thrower
        ud2
.Llanding: call leaf
        ret
        end     jumps

        function thrower
        call    raise
        ud2
        end     thrower

        function raise
        mov     %r12, %rsp
        jmp     *%r13
        end     raise

# A call of the next instruction, which nothing returns from.
        function zero
        call    .Lnext
.Lnext: pop     %rax
        call    leaf
        ret
        end     zero
        .section .note.GNU-stack,"",@progbits
