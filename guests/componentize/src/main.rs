//! Turns a core module with component types (from wit-bindgen) into a component.
//!
//! `skysail-componentize IN.wasm OUT.wasm`: `guests/build.sh` calls it. A toolchain that makes
//! components itself (`wasm32-wasip2`) does not need it.

use std::{env, fs};

use anyhow::{Context as _, Result, bail};

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let (Some(input), Some(output), None) = (args.next(), args.next(), args.next()) else {
        bail!("usage: skysail-componentize IN.wasm OUT.wasm");
    };
    let module = fs::read(&input).with_context(|| format!("cannot read {input}"))?;
    let component = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .with_context(|| format!("{input} does not carry component types: was it built with wit-bindgen?"))?
        .encode()
        .with_context(|| format!("cannot make a component of {input}"))?;
    // By rename: a reader of the output never sees a partial file.
    let partial = format!("{output}.partial");
    fs::write(&partial, component).with_context(|| format!("cannot write {partial}"))?;
    fs::rename(&partial, &output).with_context(|| format!("cannot write {output}"))?;
    Ok(())
}
