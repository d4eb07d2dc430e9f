//! Keeps the last good component of each provider on disk, so that it can serve after a restart
//! while its source is unreachable.
//!
//! # Layout
//! - `lock`: locked by the process that uses the folder; a process opens a folder once.
//! - `key`: 32 random bytes, which authenticate the records of this folder ([`Archive::key`]).
//! - `components/<hex digest>.wasm`: a component, written completely or not at all.
//! - `providers/<name>.json`: a provider's component and its source.
//! - `quarantine/<name>.json`: digests of releases that were rolled back.
//!
//! # Guarantees
//! - At any moment, even if the process is killed, [`Archive::get`] returns the component of the
//!   last [`Archive::put`] or of the one before it.
//! - A record is accepted only with an HMAC of its name and its content by this folder's key, and a
//!   component only with the digest that its record names. The folder, the folders in it and the
//!   files have to belong to this account or to root, and no other account may write them; the
//!   groups of this process may, because Kubernetes gives a volume's files to `fsGroup`. Sizes have
//!   a bound, and links are not followed. A record or component that fails a check is logged and
//!   treated as missing.
//! - The folder does not grow beyond its limit: components that no record names are removed first.
//!
//! # Caveats
//! Other accounts may write the state folder itself where it is the mount point of a volume: the
//! one of an `emptyDir` belongs to root and has mode 0777, and only the containers of the pod reach
//! it. Such an account can remove records, the quarantine included, and can restore records that
//! this process wrote earlier.

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, DirEntry, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use rustix::{
    fs::{AtFlags, CWD, FlockOperation, OFlags, StatxAttributes, StatxFlags, fcntl_lock, statx},
    io::Errno,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skysail_egress::{READ, WRITE, check_permissions, read_own_file, write_own_file};

use crate::{Digest, SourceFile};

#[cfg(test)]
mod tests;

/// The longest record, in bytes: a record has a digest and two texts.
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// Bytes of the key.
const KEY_BYTES: usize = 32;

/// The folder where new files are written before they are renamed.
const NEW: &str = "new";

/// Why the folder cannot be used, or a file in it cannot be written. Every message names the path
/// and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Another process uses the folder.
    #[error("{} is used by another process; give each manager its own folder", folder.display())]
    Locked {
        /// As given.
        folder: PathBuf,
    },
    /// The system returned an error.
    #[error(
        "{} cannot be used; make the folder writable by this account and by no other, on a disk with free space", path.display()
    )]
    Io {
        /// The path that was read or written.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The limit of the folder is too small.
    #[error(
        "{needed} bytes are needed in {} for the last release of each provider, and the limit is {max}; raise it, or keep fewer providers", folder.display()
    )]
    Full {
        /// As given.
        folder: PathBuf,
        /// The bytes that the archive would have with the new component.
        needed: u64,
        /// Bytes.
        max: u64,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    bytes_max: u64,
    /// One writer at a time, because the size limit covers the writes of all providers.
    writer: Mutex<()>,
    key: [u8; KEY_BYTES],
    /// A POSIX record lock on this file belongs to the process. A lock of `flock` belongs to the
    /// open file, which a child process keeps open between its fork and its exec: the folder would
    /// stay locked after its manager has ended. A record lock goes when the process closes *any*
    /// descriptor of the file, so nothing else opens it.
    _lock: File,
}

/// The end of the origin of an archived release.
const KEPT_ON_DISK: &str = " (kept on disk)";

/// The form of a record on disk.
#[derive(Serialize, Deserialize)]
struct Authenticated<T> {
    content: T,
    /// Base64 of the HMAC-SHA256 of the record's name and its content.
    hmac: String,
}

/// The last good component of a provider.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    digest: String,
    origin: String,
    /// The source in the operator's settings: after a change of the source, the component is no
    /// longer used.
    source: String,
}

/// A component that must not serve again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// `sha256:…` of the component.
    pub digest: String,
    /// The reason, for messages.
    pub reason: String,
    /// Whether it was retried once at an operator's request.
    #[serde(default)]
    pub retried: bool,
}

impl Archive {
    /// The most digests kept for a provider; the oldest is removed first.
    pub const QUARANTINED_MAX: usize = 32;

    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// Another process uses the folder, it cannot be written, or another account may write in it.
    pub fn open(folder: PathBuf, bytes_max: u64) -> Result<Self, ArchiveError> {
        let create = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path));
        create(&folder)?;
        check_folder(&folder).map_err(at(&folder))?;
        for name in ["components", "providers", "quarantine", NEW] {
            let path = folder.join(name);
            create(&path)?;
            let metadata = fs::symlink_metadata(&path);
            metadata.and_then(|metadata| check_permissions(&metadata, WRITE)).map_err(at(&path))?;
        }
        let path = folder.join("lock");
        let lock = lock_file(&path).map_err(at(&path))?;
        match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(ArchiveError::Locked { folder }),
            Err(error) => return Err(at(&path)(error.into())),
        }
        let path = folder.join("key");
        let key = secret(&path, &folder.join(NEW)).map_err(at(&path))?;
        let archive = Self { folder, bytes_max, writer: Mutex::new(()), key, _lock: lock };
        for left in archive.files(NEW)? {
            fs::remove_file(&left).map_err(at(&left))?;
        }
        Ok(archive)
    }

    /// The key of this folder, for other files that are kept in it.
    #[must_use]
    pub const fn key(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }

    /// The last good component of this provider from this source.
    ///
    /// A record or component that fails a check is logged and treated as missing, because the
    /// source still has the component.
    #[must_use]
    pub fn get(&self, provider: &str, source: &str, bytes_max: u64) -> Option<SourceFile> {
        let record = self.record(provider)?;
        if record.source != source {
            return None;
        }
        let path = self.component(&record.digest);
        let bytes = match read(&path, bytes_max) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(provider.name = provider, file = %path.display(), %error, "the last release cannot be read from disk; the provider starts from its source");
                return None;
            }
        };
        let digest = Digest::of(&bytes);
        if digest.to_string() != record.digest {
            tracing::warn!(provider.name = provider, file = %path.display(), "the last release on disk does not have the recorded digest; the provider starts from its source");
            return None;
        }
        Some(SourceFile { bytes, digest, origin: record.origin + KEPT_ON_DISK })
    }

    /// Keeps a component that has passed probation, in place of the provider's previous one, and
    /// removes it from the quarantine.
    ///
    /// # Errors
    /// The component cannot be written or exceeds the limit; the previous one stays.
    pub fn put(&self, provider: &str, source: &str, offer: &SourceFile) -> Result<(), ArchiveError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // After a restart the archived release itself is kept again.
        let origin = offer.origin.trim_end_matches(KEPT_ON_DISK).to_owned();
        let record = Record { digest: offer.digest.to_string(), origin, source: source.to_owned() };
        self.release(provider, &record.digest)?;
        let holds = self.holds(offer);
        if holds && self.record(provider).as_ref() == Some(&record) {
            return Ok(());
        }
        self.make_room(offer)?;
        if !holds {
            self.write(&self.component(&record.digest), &offer.bytes)?;
        }
        self.write_record(&self.record_path(provider), &record)
    }

    /// The provider's quarantine, the oldest entry first.
    #[must_use]
    pub fn quarantined(&self, provider: &str) -> Vec<Quarantined> {
        self.text(provider, &self.quarantine_path(provider)).unwrap_or_default()
    }

    /// Adds a component to the provider's quarantine.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn quarantine(&self, provider: &str, entry: Quarantined) -> Result<(), ArchiveError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.quarantined(provider);
        entries.retain(|known| known.digest != entry.digest);
        entries.push(entry);
        let surplus = entries.len().saturating_sub(Self::QUARANTINED_MAX);
        entries.drain(..surplus);
        self.write_quarantine(provider, &entries)
    }

    /// Removes a component from the quarantine.
    fn release(&self, provider: &str, digest: &str) -> Result<(), ArchiveError> {
        let mut entries = self.quarantined(provider);
        let before = entries.len();
        entries.retain(|entry| entry.digest != digest);
        if entries.len() == before { Ok(()) } else { self.write_quarantine(provider, &entries) }
    }

    fn write_quarantine(&self, provider: &str, entries: &[Quarantined]) -> Result<(), ArchiveError> {
        self.write_record(&self.quarantine_path(provider), &entries)
    }

    /// Removes the records of all other providers. `is_provider` is asked about each record when it
    /// would be removed: a provider may be made again while this waits for another writer.
    ///
    /// # Errors
    /// A record cannot be removed.
    pub fn retain(&self, is_provider: impl Fn(&str) -> bool) -> Result<(), ArchiveError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let records = self.files("providers")?.into_iter().chain(self.files("quarantine")?);
        for path in records {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            if !is_provider(name) {
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(())
    }

    /// Whether the component is on disk with every byte; a damaged one is written again.
    fn holds(&self, offer: &SourceFile) -> bool {
        let path = self.component(&offer.digest.to_string());
        read(&path, offer.bytes.len() as u64).is_ok_and(|bytes| bytes == offer.bytes)
    }

    /// Removes components that no record names, and checks that the new component fits.
    fn make_room(&self, offer: &SourceFile) -> Result<(), ArchiveError> {
        let mut kept = BTreeSet::from([self.component(&offer.digest.to_string())]);
        for path in self.files("providers")? {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            // After a crash before the new record is written, the old component is needed.
            if let Some(record) = self.record(&name) {
                kept.insert(self.component(&record.digest));
            }
        }
        let (mut needed, mut spare) = (offer.bytes.len() as u64, Vec::new());
        for path in self.files("components")? {
            let size = fs::symlink_metadata(&path).map_err(at(&path))?.len();
            if !kept.contains(&path) {
                spare.push(path);
            } else if path != self.component(&offer.digest.to_string()) {
                needed += size;
            }
        }
        for path in spare {
            fs::remove_file(&path).map_err(at(&path))?;
        }
        if needed > self.bytes_max {
            return Err(ArchiveError::Full { folder: self.folder.clone(), needed, max: self.bytes_max });
        }
        Ok(())
    }

    fn component(&self, digest: &str) -> PathBuf {
        // An invalid digest in a record must not become a path.
        let name = digest.parse::<Digest>().map_or_else(|_| "none".to_owned(), |digest| digest.to_string());
        self.folder.join("components").join(format!("{}.wasm", name.trim_start_matches("sha256:")))
    }

    fn record_path(&self, provider: &str) -> PathBuf {
        self.folder.join("providers").join(format!("{provider}.json"))
    }

    fn quarantine_path(&self, provider: &str) -> PathBuf {
        self.folder.join("quarantine").join(format!("{provider}.json"))
    }

    fn record(&self, provider: &str) -> Option<Record> {
        self.text(provider, &self.record_path(provider))
    }

    fn text<T: Serialize + DeserializeOwned>(&self, provider: &str, path: &Path) -> Option<T> {
        let bytes = match read(path, RECORD_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(provider.name = provider, file = %path.display(), %error, "the record of a provider cannot be read; the provider starts without the record");
                return None;
            }
        };
        let content = self.authentic(path, &bytes);
        if content.is_none() {
            tracing::warn!(provider.name = provider, file = %path.display(), "the record of a provider was not written by this manager; the provider starts without the record");
        }
        content
    }

    /// The content of a record that was written with the key of this folder, under this name.
    fn authentic<T: Serialize + DeserializeOwned>(&self, path: &Path, bytes: &[u8]) -> Option<T> {
        let Authenticated { content, hmac } = serde_json::from_slice(bytes).ok()?;
        let (key, message) = self.signed(path, &content).ok()?;
        hmac::verify(&key, &message, &BASE64.decode(hmac).ok()?).ok()?;
        Some(content)
    }

    fn write_record<T: Serialize>(&self, path: &Path, content: &T) -> Result<(), ArchiveError> {
        let text = || {
            let (key, message) = self.signed(path, content)?;
            serde_json::to_vec_pretty(&Authenticated { content, hmac: BASE64.encode(hmac::sign(&key, &message)) })
        };
        self.write(path, &text().map_err(io::Error::other).map_err(at(path))?)
    }

    /// The key and the message of a record's HMAC. The message contains the record's path, which
    /// names the provider and the kind of record.
    fn signed<T: Serialize>(&self, path: &Path, content: &T) -> serde_json::Result<(hmac::Key, Vec<u8>)> {
        let name = path.strip_prefix(&self.folder).unwrap_or(path);
        let message = serde_json::to_vec(&("skysail record 1", name, content))?;
        Ok((hmac::Key::new(hmac::HMAC_SHA256, &self.key), message))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
        write_own_file(path, &self.folder.join(NEW), &[bytes]).map_err(at(path))
    }

    /// Directories that Skysail did not create are left alone.
    fn files(&self, folder: &str) -> Result<Vec<PathBuf>, ArchiveError> {
        let path = self.folder.join(folder);
        let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let is_file = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_dir());
        Ok(entries.map_err(at(&path))?.into_iter().filter(is_file).map(|entry| entry.path()).collect())
    }
}

fn read(path: &Path, bytes_max: u64) -> io::Result<Bytes> {
    read_own_file(path, bytes_max, WRITE).map(Bytes::from)
}

/// Whether no other account may exchange what is in the state folder. Where other accounts may
/// write a folder, its sticky bit keeps them from that. See the caveat of the module for a mount
/// point.
fn check_folder(folder: &Path) -> io::Result<()> {
    let attributes = statx(CWD, folder, AtFlags::empty(), StatxFlags::empty())?.stx_attributes;
    check_writers(&fs::metadata(folder)?, attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn check_writers(folder: &Metadata, is_mount_point: bool) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let may_be_written = is_mount_point || folder.mode() & STICKY != 0;
    check_permissions(folder, if may_be_written { 0 } else { WRITE })
}

/// Another account may have put a link or a pipe here.
fn lock_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file; delete it"));
    }
    check_permissions(&metadata, WRITE)?;
    Ok(file)
}

/// The key in this file, created at the first start. `new` is the folder of incomplete files.
///
/// A key that another account may read or write, or that a full disk truncated, is replaced; the
/// records that it authenticated are lost.
fn secret(path: &Path, new: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let kept = read_own_file(path, KEY_BYTES as u64, READ | WRITE);
    match kept.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(&*bytes).map_err(io::Error::other)) {
        Ok(key) => return Ok(key),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "the key of the state folder cannot be used and is replaced; the existing records are not used");
        }
    }
    let mut key = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut key).map_err(|_| io::Error::other("the system's random number generator failed"))?;
    write_own_file(path, new, &[&key])?;
    Ok(key)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |source| ArchiveError::Io { path, source }
}
