//! Reads small files: those that a configuration names (values of credentials, certificates,
//! texts), and those that this process keeps for its next start, which it also writes. Writes those
//! that a command line names.
//!
//! Another process may replace such a file at any time by a link, a pipe or an endless device. So
//! the kind, the owner, the size and the content are always those of the open file.

use std::{
    fs::{self, File, FileType, Metadata, OpenOptions, Permissions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use rustix::{
    fs::OFlags,
    io::Errno,
    process::{Gid, getegid, geteuid, getgroups},
};

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is a directory, or something that could block for ever or have no end.
    #[error("it is {0} and not a regular file")]
    Irregular(&'static str),
    /// The file has more bytes than allowed.
    #[error("it has more than {bytes_max} bytes")]
    TooLarge {
        /// The file's size, or the number of bytes that were read.
        size: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

const DIRECTORY: &str = "a directory";

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::System(error) => error,
            ReadError::Irregular(DIRECTORY) => ErrorKind::IsADirectory.into(),
            ReadError::Irregular(_) => Self::new(ErrorKind::InvalidInput, error),
            ReadError::TooLarge { .. } => Self::new(ErrorKind::FileTooLarge, error),
        }
    }
}

/// The content of a regular file of at most `bytes_max` bytes. Follows links: mounted Secrets and
/// ConfigMaps consist of them. Blocks for the time of a disk read, and never waits for a writer.
///
/// # Errors
/// Errors of the system; [`ErrorKind::IsADirectory`]; [`ErrorKind::InvalidInput`] for a pipe, a
/// socket or a device, which could block for ever or have no end; [`ErrorKind::FileTooLarge`].
pub fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    Ok(read_open_file(path, bytes_max)?.0)
}

/// As [`read_file`], with the file that the content is of, for its identity and its times.
///
/// # Errors
/// [`ReadError`].
pub fn read_open_file(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, File), ReadError> {
    let file = open(path, OFlags::empty())?;
    Ok((content(&file, bytes_max, |_| Ok(()))?, file))
}

/// As [`read_file`], for a file that this process wrote: follows no link, and
/// [`check_permissions`] has to pass for these permissions.
///
/// # Errors
/// As [`read_file`] and [`check_permissions`]; those of the system for a link.
pub fn read_own_file(path: &Path, bytes_max: u64, permissions: u32) -> io::Result<Vec<u8>> {
    let file = open(path, OFlags::NOFOLLOW)?;
    Ok(content(&file, bytes_max, |metadata| check_permissions(metadata, permissions))?)
}

/// Writes a file for [`read_own_file`]: it has all the parts, or stays as it was, also in a crash.
///
/// The incomplete file is in `folder`, which has to be on the file system of `path`. Its name ends
/// with `.new`, and it stays there where the process is killed.
///
/// # Errors
/// Those of the system.
pub fn write_own_file(path: &Path, folder: &Path, parts: &[&[u8]]) -> io::Result<()> {
    // Only this account may read or write it.
    write(path, folder, 0o600, parts)
}

/// Writes a file that a person named: it has all the bytes, or stays as it was, also in a crash. If
/// it is a symbolic link, its target is replaced. The umask decides the permissions, as for any new
/// file.
///
/// # Errors
/// Those of the system.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    write(&path, folder_of(&path), 0o666, &[bytes])
}

fn write(path: &Path, folder: &Path, mode: u32, parts: &[&[u8]]) -> io::Result<()> {
    let permissions = Permissions::from_mode(mode);
    let new = tempfile::Builder::new().suffix(".new").permissions(permissions).tempfile_in(folder);
    // The text of this error would contain the random name of the incomplete file.
    let mut new = new.map_err(|error| {
        let kind = error.kind();
        io::Error::new(kind, format!("cannot create a file in {}: {kind}", folder.display()))
    })?;
    for part in parts {
        new.write_all(part)?;
    }
    new.as_file().sync_all()?;
    new.persist(path)?;
    // The name is on disk when its folder is.
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn open(path: &Path, flags: OFlags) -> Result<File, ReadError> {
    // With NONBLOCK the opening of a pipe does not wait for its writer.
    let flags = (OFlags::NONBLOCK | flags).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => ReadError::Irregular("a socket"),
        _ => ReadError::System(error),
    })
}

fn content(file: &File, bytes_max: u64, check: impl FnOnce(&Metadata) -> io::Result<()>) -> Result<Vec<u8>, ReadError> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadError::Irregular(name_of(metadata.file_type())));
    }
    check(&metadata)?;
    let too_large = |size| ReadError::TooLarge { size, bytes_max };
    if metadata.len() > bytes_max {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default() + 1);
    // One byte more than allowed, because the file may grow after its size was read.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        DIRECTORY
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a device"
    }
}

/// Permission bits of one class of accounts.
pub const WRITE: u32 = 0o2;
/// As [`WRITE`].
pub const READ: u32 = 0o4;

/// Whether only this process's account, its groups and root have these permissions on a file or
/// directory.
///
/// The groups of this process may have any permission: each time a pod starts, Kubernetes gives the
/// files of a volume to the group `fsGroup`, which is one of the pod's groups, and lets the group
/// write them.
///
/// # Errors
/// Another account owns the file, or has one of the permissions.
pub fn check_permissions(metadata: &Metadata, permissions: u32) -> io::Result<()> {
    let groups = getgroups()?.into_iter().chain([getegid()]).map(Gid::as_raw).collect();
    let account = Account { user: geteuid().as_raw(), groups };
    account.check((metadata.uid(), metadata.gid()), metadata.mode(), permissions).map_err(io::Error::other)
}

struct Account {
    user: u32,
    groups: Vec<u32>,
}

impl Account {
    fn check(&self, (user, group): (u32, u32), mode: u32, permissions: u32) -> Result<(), String> {
        const ROOT: u32 = 0;
        if user != self.user && user != ROOT {
            return Err(format!(
                "it belongs to user {user}, and this process is user {0}; run chown {0}, or delete it: the manager creates it again",
                self.user
            ));
        }
        let of_group = if self.groups.contains(&group) { 0 } else { mode >> 3 };
        if (mode | of_group) & permissions != 0 {
            let mode = mode & 0o777;
            let (access, bits) = if permissions & READ == 0 { ("write", "go-w") } else { ("read or write", "go-rw") };
            return Err(format!(
                "other accounts can {access} it (mode {mode:03o}); run chmod {bits}, or delete it: the manager creates it again"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        io::ErrorKind,
        os::unix::{
            fs::{PermissionsExt as _, symlink},
            net::UnixListener,
        },
        path::Path,
        process::Command,
        sync::mpsc,
        thread,
        time::Duration,
    };

    use super::{Account, OFlags, READ, WRITE, content, open, read_file, read_own_file, write_file, write_own_file};

    #[test]
    fn a_pipe_a_socket_a_device_and_a_directory_are_refused_without_waiting() {
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

    /// A check of the path before the opening may be of another file: a pipe that takes its place
    /// in between would then block the reader. A race of both shows that only now and then; these
    /// are the two steps.
    #[test]
    fn a_pipe_is_opened_without_waiting_and_judged_open_whatever_is_at_its_path_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for pipe in ["file", "pipe"] {
            assert!(Command::new("mkfifo").arg(path(pipe)).status().unwrap().success());
        }
        fs::write(path("regular"), "four").unwrap();
        let open_file = || {
            let (file, (sender, opened)) = (path("file"), mpsc::channel());
            // Nothing joins this thread: where it waits for a writer, the test fails.
            thread::spawn(move || sender.send(open(&file, OFlags::empty())));
            let opened = opened.recv_timeout(Duration::from_mins(1));
            opened.expect("the opening waits for a writer of the pipe").expect("the opening must not judge the path")
        };
        let read = |file| content(&file, 100, |_| Ok(()));
        let pipe = open_file();
        fs::rename(path("regular"), path("file")).unwrap();
        assert_eq!(read(pipe).unwrap_err().to_string(), "it is a pipe and not a regular file");
        let regular = open_file();
        fs::rename(path("pipe"), path("file")).unwrap();
        assert_eq!(read(regular).unwrap(), b"four");
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

    #[test]
    fn an_own_file_is_read_only_where_it_is_no_link_and_no_other_account_may_write_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "four").unwrap();
        symlink("file", path("link")).unwrap();
        let with_mode = |mode| fs::set_permissions(path("file"), Permissions::from_mode(mode)).unwrap();
        with_mode(0o600);
        assert_eq!(read_own_file(&path("file"), 4, READ | WRITE).unwrap(), b"four");
        assert!(read_own_file(&path("link"), 4, WRITE).is_err());
        with_mode(0o604);
        assert_eq!(read_own_file(&path("file"), 4, WRITE).unwrap(), b"four");
        assert!(read_own_file(&path("file"), 4, READ | WRITE).unwrap_err().to_string().contains("(mode 604)"));
        with_mode(0o602);
        assert!(read_own_file(&path("file"), 4, WRITE).unwrap_err().to_string().contains("(mode 602)"));
        assert_eq!(read_file(&path("link"), 4).unwrap(), b"four");
    }

    #[test]
    fn a_file_is_written_as_a_whole_and_only_for_this_account() {
        let (folder, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("file");
        fs::write(&path, "what was there before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        write_own_file(&path, new.path(), &[b"fo", b"ur"]).unwrap();
        assert_eq!(read_own_file(&path, 4, READ | WRITE).unwrap(), b"four");
        write_own_file(&folder.path().join("absent/file"), new.path(), &[b"four"]).unwrap_err();
        assert_eq!(fs::read_dir(new.path()).unwrap().count(), 0, "no incomplete file is left");
    }

    #[test]
    fn a_written_symbolic_link_keeps_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["provider.wasm", "current.wasm"].map(|name| folder.path().join(name));
        write_file(&file, b"one").unwrap();
        symlink("provider.wasm", &link).unwrap();
        write_file(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no incomplete file is left");
        let error = write_file(&folder.path().join("absent/file"), b"one").unwrap_err().to_string();
        assert_eq!(error, format!("cannot create a file in {}/absent: entity not found", folder.path().display()));
    }

    #[test]
    fn a_file_passes_where_only_this_account_its_groups_and_root_may_write_it() {
        let account = Account { user: 65532, groups: vec![65532, 2000] };
        let passes = |owner, mode, permissions| account.check(owner, mode, permissions).is_ok();
        for (owner, mode) in [((65532, 65532), 0o600), ((0, 0), 0o644), ((65532, 2000), 0o2660), ((65532, 9), 0o640)] {
            assert!(passes(owner, mode, WRITE), "{owner:?} {mode:o}");
        }
        for (owner, mode) in [((1000, 65532), 0o600), ((65532, 9), 0o620), ((65532, 65532), 0o602), ((0, 2000), 0o666)]
        {
            assert!(!passes(owner, mode, WRITE), "{owner:?} {mode:o}");
        }
        assert!(passes((65532, 2000), 0o660, READ | WRITE));
        assert!(!passes((65532, 9), 0o640, READ | WRITE));
        assert!(!passes((65532, 65532), 0o604, READ | WRITE));
    }
}
