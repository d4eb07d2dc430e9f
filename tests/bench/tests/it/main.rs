//! The comparison with the Go peer, small: that it works and that both ends are the same, not how fast.

mod side_by_side;
