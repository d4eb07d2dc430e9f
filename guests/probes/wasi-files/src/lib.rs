//! A probe that looks for variables, arguments and directories of the manager.

use skysail_guest_sdk::Result;
use skysail_probe::wasi;

skysail_probe::probe!("wasi-files", attack);

fn attack() -> Result<String> {
    Ok(wasi::surroundings())
}
