//! Reads files that another process may replace with anything at any time: a link, a pipe, a device
//! without an end.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use bytes::Bytes;
use rustix::{
    fs::OFlags,
    process::{getegid, geteuid, getgroups},
};

/// Where a file lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a folder of the operator. Mounted Secrets and ConfigMaps consist of links.
    Operators,
    /// In a folder that this process writes, without links: it is believed only where no other
    /// account may write it.
    Ours,
}

/// Reads a regular file that is no longer than this. Blocks, but never for a pipe's writer.
pub(crate) fn read(path: &Path, bytes_max: u64, place: Place) -> io::Result<Bytes> {
    let file = open(path, place)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if place == Place::Ours {
        believe(&metadata, WRITE)?;
    }
    content(file, bytes_max)
}

/// Opens whatever is there, and does not wait for a pipe's writer.
pub(crate) fn open(path: &Path, place: Place) -> io::Result<File> {
    let nofollow = if place == Place::Ours { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::NONBLOCK | nofollow;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn content(file: File, bytes_max: u64) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes.into())
}

/// Permission bits of one class of accounts.
pub(crate) const WRITE: u32 = 0o2;
pub(crate) const READ: u32 = 0o4;

/// An error where an account other than this process's and root may do one of these with the file
/// or folder.
pub(crate) fn believe(metadata: &Metadata, permissions: u32) -> io::Result<()> {
    let ours = Account { user: geteuid().as_raw(), groups: groups()? };
    ours.believes((metadata.uid(), metadata.gid()), metadata.mode(), permissions).map_err(io::Error::other)
}

fn groups() -> io::Result<Vec<u32>> {
    Ok(getgroups()?.into_iter().chain([getegid()]).map(rustix::process::Gid::as_raw).collect())
}

struct Account {
    user: u32,
    groups: Vec<u32>,
}

impl Account {
    /// The groups of this process may do what they like: each time a pod starts, Kubernetes gives
    /// the files of a volume to the group `fsGroup`, which is one of the pod's groups, and lets it
    /// write them.
    fn believes(&self, (user, group): (u32, u32), mode: u32, permissions: u32) -> Result<(), String> {
        const ROOT: u32 = 0;
        if user != self.user && user != ROOT {
            return Err(format!("it belongs to user {user}, and this process is user {}: remove it", self.user));
        }
        let group_may = if self.groups.contains(&group) { 0 } else { mode >> 3 };
        if (mode | group_may) & permissions != 0 {
            return Err(format!(
                "other accounts may use it (mode {:03o}): remove it, or run chmod go-rwx",
                mode & 0o777
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, READ, WRITE};

    #[test]
    fn a_file_is_believed_where_only_this_account_its_groups_and_root_may_write_it() {
        let account = Account { user: 65532, groups: vec![65532, 2000] };
        let believes = |owner, mode, permissions| account.believes(owner, mode, permissions).is_ok();
        for (owner, mode) in [((65532, 65532), 0o600), ((0, 0), 0o644), ((65532, 2000), 0o2660), ((65532, 9), 0o640)] {
            assert!(believes(owner, mode, WRITE), "{owner:?} {mode:o}");
        }
        for (owner, mode) in [((1000, 65532), 0o600), ((65532, 9), 0o620), ((65532, 65532), 0o602), ((0, 2000), 0o666)]
        {
            assert!(!believes(owner, mode, WRITE), "{owner:?} {mode:o}");
        }
        assert!(believes((65532, 2000), 0o660, READ | WRITE));
        assert!(!believes((65532, 9), 0o640, READ | WRITE));
        assert!(!believes((65532, 65532), 0o604, READ | WRITE));
    }
}
