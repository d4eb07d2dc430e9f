//! The components that `make guests` builds.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use skysail_host::{CompiledComponent, Limits, engine_config};

/// The machine code of a component, which the worlds of one process share.
///
/// # Errors
/// The file is missing, or is no component.
pub(crate) fn compiled(name: &'static str) -> Result<Arc<CompiledComponent>> {
    static COMPILED: Mutex<BTreeMap<&str, Arc<CompiledComponent>>> = Mutex::new(BTreeMap::new());
    shared(&COMPILED, name, || {
        let engine = wasmtime::Engine::new(&engine_config(Limits::default().stack_bytes));
        let engine = engine.map_err(|error| anyhow!("no engine: {error}"))?;
        Ok(Arc::new(CompiledComponent::in_process(&engine, &built(name)?)?))
    })
}

/// The value of this name, which the first caller makes; others wait.
///
/// # Errors
/// Those of `make`.
pub(crate) fn shared<T: Clone>(
    all: &Mutex<BTreeMap<&'static str, T>>,
    name: &'static str,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(name) {
        return Ok(known.clone());
    }
    let made = make()?;
    all.insert(name, made.clone());
    Ok(made)
}

/// A component of `components` in the target folder of this test.
///
/// # Errors
/// The file is missing.
pub fn built(name: &str) -> Result<Vec<u8>> {
    let file: PathBuf = target()?.join("components").join(format!("{name}.wasm"));
    let make = match name.strip_prefix("vendor-") {
        Some(vendor) => format!("tests/conformance/providers/vendors/build.sh {vendor}"),
        None => "make guests".to_owned(),
    };
    fs::read(&file).with_context(|| format!("{} is missing; run {make}", file.display()))
}

/// The target folder of this program.
///
/// # Errors
/// The program is in no target folder, or no component was built.
pub(crate) fn target() -> Result<PathBuf> {
    // TARGET/PROFILE/deps/providers-…, or TARGET/PROFILE/provider-figures
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let target = program.ancestors().find(|folder| folder.join("components").is_dir());
    Ok(target.context("no component is in the target folder of this program; run make guests")?.to_owned())
}

/// A program that `.ci/setup SETUP` installs below `tools` in the target folder.
///
/// # Errors
/// The program is missing.
pub fn tool(setup: &str, name: &str) -> Result<PathBuf> {
    let file = target()?.join("tools").join(name);
    ensure!(file.exists(), "{} is missing; run .ci/setup {setup}", file.display());
    Ok(file)
}
