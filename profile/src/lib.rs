//! What branch records mean: recordings in and out, symbols, analyses.
