//! A probe that opens a file below a directory whose handle it invents.

use skysail_guest_sdk::{Result, config};
use skysail_probe::wasi;

skysail_probe::probe!("wasi-handles", attack);

fn attack() -> Result<String> {
    // A handle that exists is that of a stream.
    let _stream = wasi::stdout();
    let handle = config::text().parse().unwrap_or_default();
    Ok(format!("opened: {}", wasi::open_below(handle, "etc/passwd")))
}
