use super::*;

#[test]
fn names_lose_first_what_says_least() {
    let vector = "std::vector<std::pair<int, double>, std::allocator<std::pair<int, double> > >\
                  ::push_back(std::pair<int, double> const&)";
    assert_eq!(shortened(vector, 70), "std::vector<…>::push_back(std::pair<int, double> const&)");
    assert_eq!(shortened(vector, 33), "std::vector<…>::push_back(…)");
    assert_eq!(shortened(vector, 27), "…::vector<…>::push_back(…)");
    assert_eq!(shortened(vector, 20), "…::push_back(…)");
    assert_eq!(shortened(vector, 9), "push…k(…)");
    let sort = "core::slice::sort::unstable::quicksort::quicksort";
    assert_eq!(shortened(sort, 49), sort);
    assert_eq!(shortened(sort, 30), "…::quicksort::quicksort");
    let into = "<alloc::vec::Vec<u64> as core::iter::traits::collect::IntoIterator>::into_iter";
    assert_eq!(shortened(into, 40), "<Vec as IntoIterator>::into_iter");
    assert_eq!(shortened(into, 20), "…::into_iter");
    let less = "std::operator< <char, std::char_traits<char> >(std::string const&)";
    assert_eq!(shortened(less, 30), "std::operator< <…>(…)");
    let call = "Compare::operator()(int, int) const";
    assert_eq!(shortened(call, 30), "Compare::operator()(…) const");
    assert_eq!(shortened("(anonymous namespace)::f(int)", 27), "(anonymous namespace)::f(…)");
    assert_eq!(shortened("関数関数関数", 8), "関数…数");
    assert_eq!(shortened("a<b", 2), "a…");
}
