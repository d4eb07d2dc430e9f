//! Finds the components that `make guests` built.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The path of a bundled component: in the named folder, else in the folder `components` beside the
/// program or one level above it.
///
/// # Errors
/// The component is not there; the error says how to build it.
pub(crate) fn bundled(named: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    let folder = match named {
        Some(folder) => folder.to_owned(),
        None => beside_the_program()?,
    };
    let path = folder.join(format!("{name}.wasm"));
    if !path.is_file() {
        bail!("{} is missing; run 'make guests'", path.display());
    }
    Ok(path)
}

fn beside_the_program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of the skysail executable")?;
    let beside = program.ancestors().skip(1).take(2).map(|folder| folder.join("components"));
    match beside.into_iter().find(|folder| folder.is_dir()) {
        Some(folder) => Ok(folder),
        None => bail!(
            "the bundled components are not beside {}; run 'make guests', name their folder with --components, or serve a component of your own with --provider or --provider-file",
            program.display()
        ),
    }
}
