use super::*;
use crate::read::select::{Field, Why};

/// Every field has another multiple of `n`, so sums must be of the same field.
fn quality(n: u64) -> Quality {
    Quality {
        samples: 2 * n,
        empty_stacks: 3 * n,
        entries: 4 * n,
        zero_entries: 5 * n,
        not_taken: 6 * n,
        duplicated_newest: 7 * n,
        double_aborts: 8 * n,
        exact: 9 * n,
        labels: BTreeMap::from([(Label::Stream, 10 * n), (Label::Gap, 11 * n)]),
        lost: BTreeMap::from([(None, 12 * n), (Some(Label::Torn), 13 * n)]),
        software: 14 * n,
        hardware: 15 * n,
        excluded: 16 * n,
        left_out: LeftOut {
            samples: 17 * n,
            by: BTreeMap::from([((Field::Pid, Why::Other), 22 * n)]),
            lost: 18 * n,
            names_unkept: 23 * n,
            cuts: false,
        },
        unkept: Unkept::default(),
        periods: Periods { events: 19 * n, squares: u128::from(20 * n), unknown: 21 * n },
    }
}

#[test]
fn qualities_add_up() {
    let mut sum = quality(1);
    sum.add(&quality(2));
    assert_eq!(sum, quality(3));
    let blocks = |n: u64| BlockQuality {
        backwards: 2 * n,
        too_long: 3 * n,
        crossing: 4 * n,
        apart: 5 * n,
        filtered: 6 * n,
        open: 7 * n,
        ..BlockQuality::default()
    };
    let mut sum = blocks(1);
    sum.add(&blocks(2));
    assert_eq!(sum, blocks(3));
}
