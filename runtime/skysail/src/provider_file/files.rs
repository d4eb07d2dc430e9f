//! The files that a configuration consists of, as they were when they were read.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
};

use skysail_host::read_file;

use super::text;

/// Every file that was asked for, also in vain: when one of them differs, the configuration has to
/// be read again.
///
/// What is remembered is of the very bytes that were handed out, so that a change is seen however
/// soon it follows the reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    seen: BTreeMap<PathBuf, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    bytes_max: u64,
    /// None where nothing could be read.
    hash: Option<u64>,
}

impl Files {
    /// Reads a text file of at most `bytes_max`; the error says what is wrong and what to do.
    pub(super) fn text(&mut self, path: &Path, bytes_max: u64) -> Result<String, String> {
        let read = read_file(path, bytes_max);
        let seen = Seen { bytes_max, hash: hash(&read) };
        // A file that is named twice counts as it was read first: if it changed in between, it is
        // read again.
        self.seen.entry(path.to_owned()).or_insert(seen);
        text::decode(read, bytes_max)
    }

    /// Whether one of them reads otherwise now.
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
    fn a_file_that_appears_changes_or_goes_is_noticed() {
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
    fn a_pipe_is_refused_with_a_sentence_and_nobody_waits_for_its_writer() {
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
    fn a_file_that_changes_between_two_readings_is_noticed() {
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
