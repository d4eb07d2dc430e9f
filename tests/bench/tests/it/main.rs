//! Small runs of the comparison with the Go peer and of the swaps: they check the results, not the
//! times.

mod side_by_side;
mod swaps;
