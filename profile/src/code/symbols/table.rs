//! Symbols by address.

use std::cmp::Reverse;

/// A symbol: start, size, and the position of its name.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    addr: u64,
    /// 0 if unknown: it extends to the next symbol.
    size: u64,
    name: (u32, u32),
    /// The nearest enclosing symbol with a size, from 1.
    outer: u32,
    /// Of several symbols at one address, the lowest rank gives the name.
    rank: u8,
}

/// A symbol and its address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SymbolExtent<'a> {
    /// Its name as in the file.
    pub(crate) name: &'a str,
    /// Its first address.
    pub(crate) addr: u64,
    /// The address after it; `None` if neither its size nor the next symbol gives it.
    pub(crate) end: Option<u64>,
}

/// Code symbols, found by address or name.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    symbols: Vec<Symbol>,
    names: String,
    /// Addresses beyond which no symbol without a size extends.
    pub(crate) bounds: Vec<u64>,
}

impl SymbolTable {
    /// Adds a symbol; call [`sort`](Self::sort) before searching.
    pub(crate) fn push(&mut self, addr: u64, size: u64, name: &str, rank: u8) {
        let start = u32::try_from(self.names.len());
        let end = u32::try_from(self.names.len() + name.len());
        let (Ok(start), Ok(end), false) = (start, end, name.is_empty()) else { return };
        self.names.push_str(name);
        self.symbols.push(Symbol { addr, size, name: (start, end), outer: 0, rank });
    }

    /// Sorts the symbols: of several at one address the best comes last, and of equals the first
    /// added.
    pub(crate) fn sort(&mut self) {
        self.symbols.sort_unstable_by_key(|symbol| {
            (symbol.addr, Reverse(symbol.rank), Reverse(symbol.name.0))
        });
        self.bounds.sort_unstable();
        self.symbols.shrink_to_fit();
        self.names.shrink_to_fit();
        // The symbols that enclose the current one, innermost last.
        let mut open: Vec<(u64, u32)> = Vec::new();
        for (symbol, number) in self.symbols.iter_mut().zip(1u32..) {
            while open.last().is_some_and(|(end, _)| *end <= symbol.addr) {
                open.pop();
            }
            symbol.outer = open.last().map_or(0, |(_, number)| *number);
            if symbol.size > 0 {
                open.push((symbol.addr.saturating_add(symbol.size), number));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The symbol that covers an address: the innermost, except that a label without a size does
    /// not hide the enclosing function.
    pub(crate) fn at(&self, addr: u64) -> Option<SymbolExtent<'_>> {
        let after = self.symbols.partition_point(|symbol| symbol.addr <= addr);
        let mut number = after;
        loop {
            let symbol = self.symbols.get(number.checked_sub(1)?)?;
            let covers = match symbol.size {
                0 => {
                    symbol.outer == 0
                        && after == number
                        && self.behind(symbol).is_none_or(|end| addr < end)
                }
                size => addr - symbol.addr < size,
            };
            if covers {
                return self.found(symbol);
            }
            number = symbol.outer as usize;
        }
    }

    fn found(&self, symbol: &Symbol) -> Option<SymbolExtent<'_>> {
        let (start, end) = symbol.name;
        let name = self.names.get(start as usize..end as usize)?;
        let end = match symbol.size {
            0 => self.behind(symbol),
            size => Some(symbol.addr.saturating_add(size)),
        };
        Some(SymbolExtent { name, addr: symbol.addr, end })
    }

    /// The end of a symbol without a size: the next symbol, or a bound.
    fn behind(&self, symbol: &Symbol) -> Option<u64> {
        let next = self.symbols.partition_point(|other| other.addr <= symbol.addr);
        let bound = self.bounds.partition_point(|bound| *bound <= symbol.addr);
        let next = self.symbols.get(next).map(|next| next.addr);
        [next, self.bounds.get(bound).copied()].into_iter().flatten().min()
    }

    /// Every symbol, sorted by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SymbolExtent<'_>> + Clone {
        self.symbols.iter().filter_map(|symbol| self.found(symbol))
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/code/symbols/table.rs"]
mod tests;
