//! A file that a command writes because a person named it.

use std::{fs, path::Path};

use anyhow::bail;

/// Refuses to replace a pipe, a device or a dangling symbolic link. `named_by` is the flag or the
/// argument with the path.
///
/// # Errors
/// The path is one of these.
pub(crate) fn check(named_by: &str, file: &Path) -> anyhow::Result<()> {
    match fs::metadata(file) {
        Ok(found) if !found.is_file() => {
            bail!("{named_by}: {} is not a regular file; name another file", file.display())
        }
        Err(_) if fs::symlink_metadata(file).is_ok() => {
            bail!("{named_by}: {} is a dangling symbolic link; remove it, or name another file", file.display())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::check;

    #[test]
    fn a_device_and_a_symbolic_link_without_a_target_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["provider.wasm", "current.wasm"].map(|name| folder.path().join(name));
        let refused = |path: &Path| check("--file", path).unwrap_err().to_string();
        assert_eq!(refused(Path::new("/dev/null")), "--file: /dev/null is not a regular file; name another file");
        check("--file", &file).unwrap();
        std::os::unix::fs::symlink("provider.wasm", &link).unwrap();
        assert!(refused(&link).ends_with("is a dangling symbolic link; remove it, or name another file"));
        fs::write(&file, "one").unwrap();
        check("--file", &file).unwrap();
        check("--file", &link).unwrap();
    }
}
