//! `wit/SHIPPED`: the released versions of the contract and the digests of their content.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::{breaks, shape::Shape};

/// A version's files: name and text.
pub(super) type Folder = BTreeMap<String, String>;

/// The folder of the contract.
pub(super) fn wit() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")
}

/// Every folder with its WIT files: `v…` of the contract, `NAME-v…` of another package.
pub(super) fn folders() -> Result<BTreeMap<String, Folder>> {
    let mut folders = BTreeMap::new();
    for entry in fs::read_dir(wit())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let mut files = Folder::new();
            for file in fs::read_dir(entry.path())? {
                let file = file?;
                let name = file.file_name().to_string_lossy().into_owned();
                files.insert(
                    name.clone(),
                    fs::read_to_string(file.path()).with_context(|| format!("cannot read {name}"))?,
                );
            }
            folders.insert(entry.file_name().to_string_lossy().into_owned(), files);
        }
    }
    Ok(folders)
}

/// SHA-256 over names and contents, in the order of the names. The lengths are included, so that
/// text cannot move between files unnoticed.
pub(super) fn digest(folder: &Folder) -> String {
    let mut hash = Sha256::new();
    for (name, text) in folder {
        hash.update(format!("{}:{name}{}:{text}", name.len(), text.len()));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares the folders with the table of released versions: lines of `vX.Y.Z DIGEST`, with
/// comments after `#`.
pub(super) fn problems(shipped: &str, folders: &BTreeMap<String, Folder>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut frozen = BTreeMap::new();
    for line in shipped.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((version, pinned)) = line.split_once(' ') else {
            problems.push(format!("wit/SHIPPED: `{line}` is not `vX.Y.Z DIGEST`"));
            continue;
        };
        match folders.get(version) {
            None => problems.push(format!("wit/{version} was released and is missing: restore it, because components of that version are in use")),
            Some(folder) if digest(folder) != pinned => problems.push(format!(
                "wit/{version} was released and has been edited (its digest is now {}): put the change into a new version's folder",
                digest(folder)
            )),
            Some(folder) => drop(frozen.insert(version, folder)),
        }
    }
    for (version, folder) in folders {
        let shape = match Shape::read(folder, used(version, folders)) {
            Ok(shape) => shape,
            Err(error) => {
                problems.push(format!("wit/{version}: {error:#}"));
                continue;
            }
        };
        if shape.folder != *version {
            problems.push(format!("wit/{version} declares a package whose folder is wit/{}", shape.folder));
        }
        let draft = folder.values().any(|text| text.contains("DRAFT"));
        if draft == shipped.lines().any(|line| line.starts_with(&format!("{version} "))) {
            problems
                .push(format!("wit/{version}: a version that is not in wit/SHIPPED says DRAFT, one that is does not"));
        }
        // The youngest frozen one of the same line before this one.
        let before =
            frozen.iter().filter(|(old, _)| line_of(old) == line_of(version) && patch_of(old) < patch_of(version));
        let Some((old, before)) = before.max_by_key(|(old, _)| patch_of(old)) else { continue };
        let Ok(before) = Shape::read(before, used(old, folders)) else { continue };
        for it in breaks(&before, &shape) {
            problems.push(format!(
                "wit/{version} breaks components of {old}: {}: {}. It belongs to a new 0.x line.",
                it.item, it.what
            ));
        }
    }
    problems
}

/// The packages whose types this folder's package may use: a package for tools uses the contract.
fn used<'a>(version: &str, folders: &'a BTreeMap<String, Folder>) -> Vec<&'a Folder> {
    let is_contract = |version: &str| version.starts_with('v');
    if is_contract(version) {
        return Vec::new();
    }
    folders.iter().filter(|(other, _)| is_contract(other)).map(|(_, folder)| folder).collect()
}

/// Versions that match each other: `v0.1` for v0.1.3, `v1` for v1.4.2, `legacy-v0.1` for
/// legacy-v0.1.3.
fn line_of(version: &str) -> &str {
    let parts = if numbers_of(version).starts_with("0.") { 2 } else { 1 };
    version.match_indices('.').nth(parts - 1).map_or(version, |(at, _)| &version[..at])
}

/// Minor and patch as numbers, to put versions of one line into order.
fn patch_of(version: &str) -> Vec<u64> {
    numbers_of(version).split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

fn numbers_of(version: &str) -> &str {
    version.rsplit_once('v').map_or(version, |(_, numbers)| numbers)
}
