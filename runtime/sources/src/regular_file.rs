//! Reads files that somebody else may exchange for anything at any time: a link, a pipe, something without an end.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use bytes::Bytes;
use rustix::fs::OFlags;

/// Whether the name may be a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Mounted Secrets and ConfigMaps are nothing but links.
    Followed,
    /// Nobody writes one into a folder of ours.
    Refused,
}

/// Reads a regular file that is no longer than this. Blocks, but never for a pipe's writer.
pub(crate) fn read(path: &Path, bytes_max: u64, links: Links) -> io::Result<Bytes> {
    let nofollow = if links == Links::Refused { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::NONBLOCK | nofollow;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes.into())
}
