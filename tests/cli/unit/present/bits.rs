use super::*;

#[test]
fn the_ruler_stands_over_its_bits() {
    let (ruler, bits) = (ruler(), nibbles(|bit| if bit % 8 == 7 { 'h' } else { '.' }));
    let numbers: Vec<usize> = ruler
        .char_indices()
        .filter(|(i, c)| *c != ' ' && (*i == 0 || ruler.as_bytes()[i - 1] == b' '))
        .map(|(i, _)| i)
        .collect();
    let highs: Vec<usize> = bits.match_indices('h').map(|(i, _)| i).collect();
    assert_eq!(numbers, highs);
    assert_eq!(highs.len(), 8);
}
