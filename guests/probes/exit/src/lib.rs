//! A probe that exits instead of returning.

use skysail_guest_sdk::Result;
use skysail_probe::wasi;

skysail_probe::probe!("exit", attack);

fn attack() -> Result<String> {
    wasi::exit(Err(()));
    Ok("stayed".to_owned())
}
