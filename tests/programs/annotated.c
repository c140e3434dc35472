/* Loops, early exits, a switch through a table, calls through pointers, and a
 * recursion, without libc: annotate.rs compares how often each instruction ran
 * with callgrind. */
typedef unsigned int u32;

__attribute__((noinline)) static u32 add(u32 a, u32 b) { return a + b; }
__attribute__((noinline)) static u32 mix(u32 a, u32 b) { return (a ^ b) * 2654435761u; }
static u32 (*const operations[2])(u32, u32) = {add, mix};

__attribute__((noinline)) u32 deep(u32 n) { return n == 0 ? 1 : mix(deep(n - 1), n); }

__attribute__((noinline)) u32 work(const unsigned char *program, u32 length, u32 limit)
{
    u32 state = 1;
    for (u32 round = 0; round < 50; round++) {
        for (u32 at = 0; at < length; at++) {
            switch (program[at]) {
            case 0: state += at; break;
            case 1: state = operations[state & 1](state, at); break;
            case 2:
                for (u32 bits = state & 7; bits; bits--)
                    state = state * 3 + bits;
                break;
            case 3:
                if (state % 5 == 0)
                    goto next;
                state ^= 0x55;
                break;
            case 4: state = deep(state & 3); break;
            case 5: state >>= 1; break;
            default: state -= 7; break;
            }
            if (state >> 26 == limit)
                return state;
        }
    next:;
    }
    return state;
}

/* Never called. */
__attribute__((noinline, used)) u32 idle(u32 a) { return a * 3; }

static const unsigned char program[] = {0, 1, 2, 3, 4, 5, 6, 2, 1, 0, 3, 5};

__attribute__((used, noinline)) static int run(void)
{
    u32 sum = 0;
    for (u32 i = 0; i < 6; i++)
        sum += work(program, sizeof program, i * 7);
    return sum & 1;
}

__asm__(".globl _start\n_start: and $-16, %rsp\ncall run\nmov $60, %eax\nxor %edi, %edi\nsyscall\n");
