# The code behind the text book's tables; textbook.rs writes recordings of it.
# Linked with .text at 0x400600. Never run.
        .text
        .globl _start
_start:
start_c: call   main
        ud2

# The basic block whose latency is measured, at its addresses.
        .org    0x0a
before: jmp     block                   # 40060a
        .org    0x18
        .type   block, @function
block:  movb    $0, (%rbp,%rdx,1)       # 400618
        add     $1, %rdx
        cmp     $0xc800000, %rdx
block_j: jne    behind                  # 400628
        ud2
        .org    0x44
behind: ret                             # 400644
        .size   block, .-block

        .type   main, @function
main:   nop
main_c: call    foo
        ret
        .size   main, .-main
        .type   foo, @function
foo:    nop
foo_b:  call    bar
foo_r:  nop
foo_z:  call    zoo
        ret
        .size   foo, .-foo
        .type   zoo, @function
zoo:    nop
zoo_b:  call    bar
        ret
        .size   zoo, .-zoo
        .type   bar, @function
bar:    nop
bar_j:  jz      bar_t
        nop
bar_t:  nop
bar_r:  ret
        .size   bar, .-bar
        .type   idle, @function
idle:   ret
        .size   idle, .-idle

        .type   LzmaDec, @function
LzmaDec: nop
dec_j:  jz      dec_t
        nop
dec_t:  ret
        .size   LzmaDec, .-LzmaDec
        .type   LzmaFind, @function
LzmaFind: nop
find_j: jz      find_t
        nop
find_t: ret
        .size   LzmaFind, .-LzmaFind
        .type   LzmaEnc, @function
LzmaEnc: nop
enc_j:  jz      enc_t
        nop
enc_t:  ret
        .size   LzmaEnc, .-LzmaEnc
        .section .note.GNU-stack,"",@progbits
