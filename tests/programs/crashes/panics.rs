// Dies of a panic that aborts. flags: -O -g -C panic=abort
#[inline(never)]
fn pick(numbers: &[u32], at: usize) -> u32 {
    numbers[at]
}
fn main() {
    let numbers = [1, 2, 3];
    std::process::exit(pick(&numbers, std::env::args().count() + 2) as i32);
}
