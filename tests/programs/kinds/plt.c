/* flags: -O1 -Wl,-z,lazy -fno-builtin */
#include <stdlib.h>
#include <string.h>
static int by(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int all[] = {5, 3, 9, 1};
    for (int i = 0; i < 3; i++) qsort(all, 4, sizeof *all, by);
    return all[0] != 1 || strlen("abc") != 3 || abs(-2) != 2;
}
