//! A probe that opens all its requests through `wasi:http` before the first answer, and reads none:
//! the host holds the answers.

use skysail_guest_sdk::{Result, config};
use skysail_probe::wasi::fetch_at_once;

skysail_probe::probe!("wasi-http-answers", attack);

/// The answers to all of them are larger than the guest's memory.
const AT_ONCE: usize = 12;

fn attack() -> Result<String> {
    let (answered, error) = fetch_at_once(&config::text(), AT_ONCE).unwrap_or_default();
    Ok(format!("{answered} answered, {error:?}"))
}
