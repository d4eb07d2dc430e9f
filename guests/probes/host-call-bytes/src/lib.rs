//! A probe that passes the host more bytes than it accepts.

use skysail_guest_sdk::{
    Result,
    log::{Level, write},
};

skysail_probe::probe!("host-call-bytes", attack);

fn attack() -> Result<String> {
    let field = ("k".to_owned(), "v".repeat(1 << 20));
    let fields: Vec<_> = (0..16).map(|_| field.clone()).collect();
    write(Level::Info, "large", &fields);
    Ok("written".to_owned())
}
