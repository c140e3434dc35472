use super::Few;

#[test]
fn values_are_those_of_their_numbers_until_taken_out() {
    let mut few = Few::<u64>::default();
    for (number, more) in [(7, 1), (0, 2), (7, 4), (3, 8)] {
        *few.at(number) += more;
    }
    assert_eq!(few.drain().collect::<Vec<_>>(), [(7, 5), (0, 2), (3, 8)]);
    // Stale entries are ignored.
    for (number, more) in [(3, 1), (7, 2)] {
        *few.at(number) += more;
    }
    assert_eq!(few.drain().collect::<Vec<_>>(), [(3, 1), (7, 2)]);
}
