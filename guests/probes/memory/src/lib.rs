//! A probe that hoards memory.

use std::hint::black_box;

use skysail_guest_sdk::Result;

skysail_probe::probe!("memory", attack);

fn attack() -> Result<String> {
    let mut hoard = Vec::new();
    while black_box(true) {
        hoard.push(black_box(vec![1_u8; 1 << 20]));
    }
    Ok(hoard.len().to_string())
}
