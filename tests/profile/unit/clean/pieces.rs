use super::{PIECE, Pieces};

#[test]
fn things_stay_where_they_were_put() {
    let mut pieces = Pieces::default();
    let all = 2 * PIECE as u32 + 1;
    for number in 0..all {
        assert_eq!(pieces.len(), number as usize);
        assert!(pieces.get(number).is_none());
        pieces.push(number);
    }
    *pieces.get_mut(PIECE as u32).expect("it was put there") = 7;
    let is = |number: u32| if number == PIECE as u32 { 7 } else { number };
    assert!((0..all).all(|number| pieces.get(number) == Some(&is(number))));
    assert!(pieces.take().eq((0..all).map(is)));
}
