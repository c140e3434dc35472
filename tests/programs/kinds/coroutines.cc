// flags: -O1 -std=c++20 -fcoroutines
#include <coroutine>
struct Numbers {
    struct promise_type {
        int value = 0;
        Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(int v) { value = v; return {}; }
        void return_void() {}
        void unhandled_exception() {}
    };
    std::coroutine_handle<promise_type> handle;
};
static Numbers squares(int n) { for (int i = 1; i <= n; i++) if (i % 3) co_yield i * i; }
int main() {
    int sum = 0;
    Numbers all = squares(9);
    for (all.handle.resume(); !all.handle.done(); all.handle.resume()) sum += all.handle.promise().value;
    all.handle.destroy();
    return sum != 159;
}
