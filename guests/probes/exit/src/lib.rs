//! A probe that leaves instead of answering.

use skysail_guest_sdk::Result;
use skysail_probe::wasi;

skysail_probe::probe!("exit", attack);

fn attack() -> Result<String> {
    wasi::exit(Err(()));
    Ok("stayed".to_owned())
}
