//! A probe that recurses forever.

use std::hint::black_box;

use skysail_guest_sdk::Result;

skysail_probe::probe!("stack", attack);

#[inline(never)]
fn deeper(n: u64) -> u64 {
    if black_box(n) == u64::MAX { 0 } else { deeper(n + 1) ^ n }
}

fn attack() -> Result<String> {
    Ok(deeper(black_box(0)).to_string())
}
