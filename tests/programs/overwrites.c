// Writes a byte (the argument) over all memory that it shares with others, and then runs on for 20 s.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    FILE *maps = fopen("/proc/thread-self/maps", "r");
    char line[4096], mode[8];
    unsigned long from, to;
    alarm(20);
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) == 3 && mode[1] == 'w' && mode[3] == 's')
            memset((void *)from, count > 1 ? atoi(words[1]) : 0, to - from);
    for (;;) {}
}
