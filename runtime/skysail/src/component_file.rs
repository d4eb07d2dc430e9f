//! Reads a component that the command line names, and finds the bundled ones.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use bytes::Bytes;

/// A component's file, read as far as its limit.
pub(crate) enum Contents {
    /// All of it.
    Whole(Bytes),
    /// It has so many bytes, more than the limit: nothing of it was read.
    TooLarge { size: u64, bytes_max: u64 },
}

/// Reads a component's file, unless it is larger than the limit.
///
/// # Errors
/// The file is not there or cannot be read.
pub(crate) fn read(path: &Path, bytes_max: u64) -> anyhow::Result<Contents> {
    let what = || format!("cannot read {}: name a component's file", path.display());
    let file = File::open(path).with_context(what)?;
    let metadata = file.metadata().with_context(what)?;
    if metadata.is_dir() {
        bail!("{} is a folder: name a component in it", path.display());
    }
    if metadata.len() > bytes_max {
        return Ok(Contents::TooLarge { size: metadata.len(), bytes_max });
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).with_context(what)?;
    if bytes.len() as u64 > bytes_max {
        // A pipe or a device: nobody can say how much more there is.
        bail!(
            "{} gives more than {bytes_max} bytes, the most that a component may have: name a component's file",
            path.display()
        );
    }
    Ok(Contents::Whole(bytes.into()))
}

/// The folder with the components that `make guests` built: the one that is named, else `components` beside the program or one folder up.
///
/// # Errors
/// There is none; the text says how to get it.
pub(crate) fn bundled_folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = named {
        return Ok(folder.to_owned());
    }
    let program = std::env::current_exe().context("cannot find the running program")?;
    let beside = program.ancestors().skip(1).take(2).map(|folder| folder.join("components"));
    match beside.into_iter().find(|folder| folder.is_dir()) {
        Some(folder) => Ok(folder),
        None => bail!(
            "the bundled components are not beside {}: run 'make guests', or name their folder with --components",
            program.display()
        ),
    }
}

/// One bundled component.
///
/// # Errors
/// It is not in the folder; the text says how to get it.
pub(crate) fn bundled(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("{name}.wasm"));
    if !path.is_file() {
        bail!("{} is not there: run 'make guests'", path.display());
    }
    Ok(path)
}
