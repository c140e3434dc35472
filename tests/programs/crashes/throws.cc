// Dies of an exception that nobody catches. flags: -O1 -g
#include <stdexcept>
__attribute__((noinline)) static int thrower(int x) {
    if (x > 0) throw std::runtime_error("nobody catches it");
    return x;
}
int main(int argc, char **) { return thrower(argc); }
