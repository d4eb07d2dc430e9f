//! A probe that keeps the host busy with calls that do nothing.

use skysail_guest_sdk::{
    Result,
    log::{Level, write},
};

skysail_probe::probe!("host-calls", attack);

fn attack() -> Result<String> {
    loop {
        write(Level::Trace, "", &[]);
    }
}
