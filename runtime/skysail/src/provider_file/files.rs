//! The files of a configuration, to notice changes.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
};

use skysail_host::read_file;

use super::text;

/// Every file that was read, including missing files: after a change of one, the configuration has
/// to be read again.
///
/// The hash is that of the bytes that were returned, so that no change after the read is missed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    seen: BTreeMap<PathBuf, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    bytes_max: u64,
    /// `None` if the file could not be read.
    hash: Option<u64>,
}

impl Files {
    /// Reads a text file of at most `bytes_max`; the error has the reason and the remedy.
    pub(super) fn text(&mut self, path: &Path, bytes_max: u64) -> Result<String, String> {
        let read = read_file(path, bytes_max);
        let seen = Seen { bytes_max, hash: hash(&read) };
        // If a file is read twice, the first content counts: a change in between is noticed.
        self.seen.entry(path.to_owned()).or_insert(seen);
        text::decode(read, bytes_max)
    }

    /// Whether the content of one of the files has changed.
    pub(crate) fn changed(&self) -> bool {
        self.seen.iter().any(|(path, Seen { bytes_max, hash: before })| hash(&read_file(path, *bytes_max)) != *before)
    }
}

fn hash(read: &io::Result<Vec<u8>>) -> Option<u64> {
    let bytes = read.as_ref().ok()?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Files;

    #[test]
    fn a_file_that_is_created_changed_or_deleted_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = || {
            let mut files = Files::default();
            drop(files.text(&path, 100));
            files
        };
        let missing = read();
        assert!(!missing.changed());
        fs::write(&path, "one").unwrap();
        assert!(missing.changed());
        let there = read();
        assert!(!there.changed());
        fs::write(&path, "two").unwrap();
        assert!(there.changed());
        fs::remove_file(&path).unwrap();
        assert!(there.changed() && !missing.changed());
    }

    #[test]
    fn a_pipe_is_refused_without_a_wait_for_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let mut files = Files::default();
        let error = files.text(&path, 100).unwrap_err();
        assert_eq!(error, "is a pipe, a socket or a device; name a regular file");
        assert!(!files.changed());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a-long-token").unwrap();
        assert!(files.changed());
    }

    #[test]
    fn a_file_that_changes_between_two_reads_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mut files = Files::default();
        for text in ["one", "two"] {
            fs::write(&path, text).unwrap();
            assert_eq!(files.text(&path, 100).unwrap(), text);
        }
        assert!(files.changed());
    }
}
