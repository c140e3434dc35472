// registers CPU REGISTER... prints registers of a CPU, REGISTER=VALUE writes
// one; without lbr, for tests that compare what lbr leaves behind.
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char path[64];
    int failed = 0;
    snprintf(path, sizeof path, "/dev/cpu/%s/msr", argc > 1 ? argv[1] : "0");
    int fd = open(path, O_RDWR);
    if (fd < 0) {
        perror(path);
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        uint64_t value = 0;
        off_t msr = strtoul(argv[i], NULL, 0);
        char *equals = strchr(argv[i], '=');
        if (equals) {
            value = strtoull(equals + 1, NULL, 0);
            failed |= pwrite(fd, &value, 8, msr) != 8;
        } else if (pread(fd, &value, 8, msr) == 8) {
            printf("%#jx %016" PRIx64 "\n", (uintmax_t)msr, value);
        } else {
            printf("%#jx -\n", (uintmax_t)msr);
        }
    }
    return failed;
}
