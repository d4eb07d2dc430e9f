//! A probe that writes few long lines.

use skysail_guest_sdk::{
    Result,
    log::{Level, write},
};

skysail_probe::probe!("log-bytes", attack);

fn attack() -> Result<String> {
    let line = "long ".repeat(1_000);
    (0..100).for_each(|_| write(Level::Info, &line, &[]));
    Ok("written".to_owned())
}
