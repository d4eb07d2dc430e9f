//! A probe that computes forever.

use std::hint::black_box;

use skysail_guest_sdk::Result;

skysail_probe::probe!("fuel", attack);

// Not inlined: the error must name the function.
#[inline(never)]
fn attack() -> Result<String> {
    let mut n = 0_u64;
    while black_box(true) {
        n = n.wrapping_add(1);
    }
    Ok(n.to_string())
}
