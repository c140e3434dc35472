//! Tests of numbers that implement one trait.

pub trait Test {
    fn holds(&self, n: u64) -> bool;
}

pub struct Prime;

/// Squares of numbers up to this one.
pub struct Square(pub u64);

impl Test for Prime {
    fn holds(&self, n: u64) -> bool {
        n > 1 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0)
    }
}

impl Test for Square {
    fn holds(&self, n: u64) -> bool {
        (0..=self.0).any(|root| root * root == n)
    }
}
