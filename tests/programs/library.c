/* Two builds of one library: with SECOND its first function is longer, so that
   everything behind it lies elsewhere. */
#define APART __attribute__((noinline, noclone)) static

APART unsigned first(unsigned n) {
#ifdef SECOND
    for (unsigned bit = 0; bit < 32; bit++)
        n ^= n << 7 | (n >> 3 & 0x1234567u) | bit;
    if (n % 7 == 3)
        n *= 11;
#endif
    return n + 1;
}

APART unsigned collatz(unsigned n) {
    unsigned steps = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        steps++;
    }
    return steps;
}

APART unsigned digits(unsigned n) {
    unsigned sum = 0;
    do {
        if (n % 10 > 4)
            sum += first(n);
        else
            sum += n % 10;
        n /= 10;
    } while (n > 0);
    return sum;
}

APART unsigned spread(unsigned n) {
    for (unsigned round = 0; round < 20; round++) {
        if (n & 1u << round)
            n += collatz(round + 1);
        else
            n ^= digits(n);
    }
    return n;
}

unsigned work(unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 1; i < n; i++)
        sum += spread(i) + digits(sum);
    return sum;
}
