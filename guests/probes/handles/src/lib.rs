//! A probe that opens streams and never closes one.

use skysail_guest_sdk::Result;
use skysail_probe::wasi;

skysail_probe::probe!("handles", attack);

fn attack() -> Result<String> {
    let streams: Vec<_> = (0..1_000_000).map(|_| wasi::stdout()).collect();
    Ok(streams.len().to_string())
}
