// flags: -O1
struct Shape { virtual int area() const = 0; virtual ~Shape() {} };
struct Square : Shape { int a; Square(int a) : a(a) {} int area() const override { return a * a; } };
struct Line : Shape { int area() const override { return 0; } };
int main() {
    Square three(3), four(4);
    Line line;
    const Shape *const all[] = {&three, &line, &four, &line};
    int sum = 0;
    for (int i = 0; i < 3; i++) for (const Shape *const volatile &shape : all) sum += shape->area();
    return sum != 75;
}
