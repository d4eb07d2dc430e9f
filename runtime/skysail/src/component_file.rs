//! Reads a component file that the command line names.

use std::{io::ErrorKind, path::Path};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use skysail_host::read_file;

/// The content of a component file.
pub(crate) enum Contents {
    /// All bytes of the file.
    Whole(Bytes),
    /// The file is larger than the limit and was not read.
    TooLarge { size: u64, bytes_max: u64 },
}

/// Reads a component file, unless it is larger than the limit. A pipe is refused, because the
/// reader could wait for it without end.
///
/// # Errors
/// The file is missing, cannot be read, or is not a regular file.
pub(crate) fn read(path: &Path, bytes_max: u64) -> anyhow::Result<Contents> {
    let shown = path.display();
    match read_file(path, bytes_max) {
        Ok(bytes) => Ok(Contents::Whole(bytes.into())),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            let size = std::fs::metadata(path).map_or(bytes_max.saturating_add(1), |metadata| metadata.len());
            Ok(Contents::TooLarge { size, bytes_max })
        }
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            Err(anyhow!("{shown} is a folder; name a component file in it"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(anyhow!("{shown} does not exist; create it, or correct the path"))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {shown}")),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use super::{Contents, read};

    #[test]
    fn a_pipe_is_refused_at_once_and_a_file_above_the_limit_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        fs::write(path("file"), "four").unwrap();
        for (path, reason) in [(path("pipe"), "not a regular file"), (folder.path().to_owned(), "is a folder")] {
            let error = format!("{:#}", read(&path, 4).err().unwrap());
            assert!(error.contains(reason), "{error}");
        }
        assert!(read(Path::new("/dev/zero"), 4).is_err());
        assert!(matches!(read(&path("file"), 4).unwrap(), Contents::Whole(bytes) if bytes == "four"));
        let Contents::TooLarge { size, bytes_max } = read(&path("file"), 3).unwrap() else {
            panic!("the file was read")
        };
        assert_eq!((size, bytes_max), (4, 3));
    }
}
