/* flags: -O1 -static */
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int status, sum = 0;
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) _exit(i > 1 ? 3 : 1);
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    return sum != 8;
}
