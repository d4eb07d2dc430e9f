//! A probe that caches a large value.

use std::time::Duration;

use skysail_guest_sdk::{Result, cache};

skysail_probe::probe!("cache-bytes", attack);

fn attack() -> Result<String> {
    let value = "x".repeat(100_000);
    let kept = (0..100).filter(|n| cache::set(&format!("key-{n}"), &value, Duration::from_secs(60))).count();
    Ok(kept.to_string())
}
