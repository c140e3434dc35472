/* flags: -O1 */
#include <string.h>
#include <sys/mman.h>
int main(void) {
    /* mov eax,edi; test eax,eax; jz +2; dec eax; ret */
    static const unsigned char code[] = {0x89, 0xf8, 0x85, 0xc0, 0x74, 2, 0xff, 0xc8, 0xc3};
    unsigned char *page = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int sum = 0;
    memcpy(page, code, sizeof code);
    for (int i = 0; i < 6; i++) sum += ((int (*)(int))page)(i);
    return sum != 10;
}
