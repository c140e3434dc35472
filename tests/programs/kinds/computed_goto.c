/* flags: -O2 */
int main(int n, char **v) {
    static const void *const ops[] = {&&add, &&twice, &&less, &&end};
    static const unsigned char code[] = {0, 1, 2, 0, 0, 1, 2, 2, 3};
    volatile int value = n;
    const unsigned char *at = code;
    goto *ops[*at++];
add: value += 3; goto *ops[*at++];
twice: value *= 2; goto *ops[*at++];
less: value--; goto *ops[*at++];
end: return value != 25;
}
