//! A probe that prints to standard output and standard error.

use skysail_guest_sdk::Result;
use skysail_probe::wasi;

skysail_probe::probe!("wasi-stdio", attack);

fn attack() -> Result<String> {
    wasi::print(false, "first line\nsecond ");
    wasi::print(true, "to standard error\n");
    wasi::print(false, "line\n\nwithout end");
    (0..1_000).for_each(|n| wasi::print(false, &format!("line {n}\n")));
    Ok(if wasi::random() == wasi::random() { "not random" } else { "random" }.to_owned())
}
