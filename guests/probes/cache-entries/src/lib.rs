//! A probe that caches many small values.

use std::time::Duration;

use skysail_guest_sdk::{Result, cache};

skysail_probe::probe!("cache-entries", attack);

fn attack() -> Result<String> {
    let kept = (0..5_000_u32).filter(|n| cache::set(&format!("key-{n}"), n, Duration::from_secs(60))).count();
    Ok(kept.to_string())
}
