//! A probe whose call waits until it is cancelled.

use skysail_guest_sdk::{Result, error};
use skysail_probe::wasi;

skysail_probe::probe!("concurrent-calls", attack);

fn attack() -> Result<String> {
    error!("waiting");
    wasi::wait_ns(3_600_000_000_000);
    Ok("waited".to_owned())
}
