//! A probe that prints as Rust programs do. On this target the standard library's macros write
//! nowhere; those of the SDK are log lines.

use skysail_guest_sdk::{Result, dbg, eprintln, println};

skysail_probe::probe!("println", attack);

fn attack() -> Result<String> {
    println!("one line");
    println!();
    eprintln!("two\nlines");
    Ok(dbg!("a value").to_owned())
}
