//! A probe that waits for an hour without work.

use skysail_guest_sdk::Result;
use skysail_probe::wasi;

skysail_probe::probe!("deadline", attack);

fn attack() -> Result<String> {
    wasi::wait_ns(3_600_000_000_000);
    Ok("waited".to_owned())
}
