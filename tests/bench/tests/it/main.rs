//! The comparison with the Go peer and the swaps by source, small: that they work and what they end
//! with, not how fast.

mod side_by_side;
mod swaps;
