/* flags: -O1 -static : becomes itself twice, and by vfork once more */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **v) {
    int status = 1;
    if (n == 1) execl(v[0], v[0], "1", (char *)0);
    if (n == 2) {
        if (vfork() == 0) execl(v[0], v[0], "1", "2", (char *)0), _exit(1);
        wait(&status);
        return status != 0;
    }
    return 0;
}
