/* A loop with known branches: spin(n) takes spin_b n - 1 times, and returns. */
void spin(int n);
__asm__(".text\n"
        ".type spin, @function\n"
        "spin:     mov %edi, %ecx\n"
        "spin_l:   dec %ecx\n"
        "spin_b:   jnz spin_l\n"
        "spin_ret: ret\n");
