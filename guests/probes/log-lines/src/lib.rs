//! A probe that writes many short lines.

use skysail_guest_sdk::{
    Result,
    log::{Level, write},
};

skysail_probe::probe!("log-lines", attack);

fn attack() -> Result<String> {
    (0..10_000).for_each(|n| write(Level::Info, &n.to_string(), &[]));
    Ok("written".to_owned())
}
