// flags: -O1
struct Guard { int *n; ~Guard() { ++*n; } };
static void deeper(int depth, int *n) {
    Guard guard{n};
    if (depth == 0) throw 7;
    deeper(depth - 1, n);
}
int main() {
    int unwound = 0, caught = 0;
    for (int i = 0; i < 4; i++)
        try { deeper(i, &unwound); } catch (int seven) { caught += seven; }
    return unwound != 10 || caught != 28;
}
