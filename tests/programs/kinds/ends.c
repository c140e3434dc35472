/* flags: -O1 -nostdlib -static : straight to the end, past branches that are not taken */
__attribute__((naked)) void _start(void) {
    __asm__("xor %edi, %edi\n test %edi, %edi\n jnz 1f\n mov $5, %ecx\n"
            "2: dec %ecx\n jnz 2b\n test %edi, %edi\n jnz 1f\n js 1f\n"
            "1: mov $231, %eax\n cmp $3, %eax\n jb 2b\n syscall\n");
}
