//! Finds the components that `make guests` built.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The folder with the components that `make guests` built: the named folder, else `components`
/// beside the program or one level above it.
///
/// # Errors
/// There is no such folder; the error says how to create it.
pub(crate) fn bundled_folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = named {
        return Ok(folder.to_owned());
    }
    let program = std::env::current_exe().context("cannot find the path of the skysail executable")?;
    let beside = program.ancestors().skip(1).take(2).map(|folder| folder.join("components"));
    match beside.into_iter().find(|folder| folder.is_dir()) {
        Some(folder) => Ok(folder),
        None => bail!(
            "the bundled components are not beside {}; run 'make guests', or name their folder with --components",
            program.display()
        ),
    }
}

/// The path of one bundled component.
///
/// # Errors
/// The component is not in the folder; the error says how to build it.
pub(crate) fn bundled(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("{name}.wasm"));
    if !path.is_file() {
        bail!("{} is missing; run 'make guests'", path.display());
    }
    Ok(path)
}
