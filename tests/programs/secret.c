/* Leaky code and its constant-time forms: secret WAY HEX. No library, so that only this code runs.
   flags: -O1 -g -nostdlib -static -fno-stack-protector */
typedef unsigned long word;
static const unsigned char known[8] = {0x13, 0x57, 0x9b, 0xdf, 0x24, 0x68, 0xac, 0xe0};

__attribute__((noinline)) static int leaky_compare(const unsigned char *a) {
    for (int i = 0; i < 8; i++)
        if (a[i] != known[i]) return 1; /* leak: compare */
    return 0;
}
__attribute__((noinline)) static int constant_compare(const unsigned char *a) {
    unsigned char differ = 0;
    for (int i = 0; i < 8; i++) differ |= a[i] ^ known[i];
    return (differ + 255) >> 8;
}
__attribute__((noinline)) static word multiply(word a, word b) { return a * b % 1000003; }
__attribute__((noinline)) static word leaky_power(word key) {
    word power = 1;
    for (int bit = 63; bit >= 0; bit--) {
        power = multiply(power, power);
        if (key >> bit & 1) /* leak: power */
            power = multiply(power, 5);
    }
    return power;
}
__attribute__((noinline)) static word constant_power(word key) {
    word power = 1;
    for (int bit = 63; bit >= 0; bit--) {
        power = multiply(power, power);
        word other = multiply(power, 5), mask = -(key >> bit & 1);
        power = (other & mask) | (power & ~mask);
    }
    return power;
}
__attribute__((used)) static void run(word *stack) {
    char **argv = (char **)(stack + 1);
    unsigned char bytes[8];
    word key = 0, result = 0;
    for (int i = 0; i < 8; i++) {
        /* Letters a to p, without a branch that depends on them. */
        bytes[i] = (argv[2][2 * i] - 'a') << 4 | (argv[2][2 * i + 1] - 'a');
        key = key << 8 | bytes[i];
    }
    switch (argv[1][0]) {
    case 'c': result = leaky_compare(bytes); break;
    case 'C': result = constant_compare(bytes); break;
    case 'p': result = leaky_power(key); break;
    case 'P': result = constant_power(key); break;
    }
    volatile word kept = result;
    __asm__ volatile("syscall" : : "a"(231), "D"(0) : "rcx", "r11", "memory");
}
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call run\n");
