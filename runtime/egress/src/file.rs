//! Reads the small files that a configuration names: values of credentials, certificates, texts.

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// The content of a regular file of at most `bytes_max` bytes. Blocks, and not for longer than a
/// disk does.
///
/// The file is opened first, so that the kind, the size and the content are those of one file, also
/// while a mount of a Secret swaps its `..data` or somebody puts a pipe in its place.
///
/// # Errors
/// Those of the system; [`ErrorKind::IsADirectory`]; [`ErrorKind::InvalidInput`] for a pipe, a
/// socket or a device, which could keep the reader waiting for ever or have no end;
/// [`ErrorKind::FileTooLarge`], without a byte of it read.
pub fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // With this flag the opening of a pipe does not wait for its writer. What was opened is judged:
    // the name may lead elsewhere by now.
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let irregular =
        || io::Error::new(ErrorKind::InvalidInput, "it is no regular file but a pipe, a socket or a device");
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        // A socket.
        Some(Errno::NXIO) => irregular(),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(irregular());
    }
    let too_large = || io::Error::new(ErrorKind::FileTooLarge, format!("more than {bytes_max} bytes"));
    if metadata.len() > bytes_max {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // One byte more than allowed: the file may grow between the look and the reading.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::ErrorKind,
        os::unix::{fs::symlink, net::UnixListener},
        path::Path,
        process::Command,
    };

    use super::read_file;

    #[test]
    fn what_is_no_regular_file_is_refused_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        symlink("pipe", path("link")).unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        let kind = |path: &Path| read_file(path, 100).unwrap_err().kind();
        for name in ["pipe", "link", "socket"] {
            assert_eq!(kind(&path(name)), ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(kind(Path::new("/dev/zero")), ErrorKind::InvalidInput);
        assert_eq!(kind(folder.path()), ErrorKind::IsADirectory);
        assert_eq!(kind(&path("none")), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_above_the_limit_is_refused_and_one_at_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read_file(&path, 4).unwrap(), b"four");
        assert_eq!(read_file(&path, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_file(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
