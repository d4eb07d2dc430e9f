//! The cache of machine code on disk: after a restart a component serves without compiling.
//!
//! # Why the files can be trusted
//! Machine code runs in this process, so a manipulated file could run any code. Each file carries a
//! keyed hash (HMAC-SHA256) of the component's digest, the compatible engines, the version of the
//! admission rules, the cost, and the code. The caller stores the key where no other account can
//! read it. The folder and its files must belong to this account or to root, and no other account
//! may have write access, except the groups of this process (Kubernetes' `fsGroup`). If a file
//! violates this, the host logs a warning and compiles the component again.
//!
//! # Layout
//! For each component and engine one file `<hex>.code`: magic, keyed hash, cost, code. Files are
//! written atomically; the oldest files are deleted when the folder is full.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use ring::{digest, hmac};
use skysail_egress::{WRITE, check_permissions, read_own_file, write_own_file};

use super::{CompileCost, CompileLimits, cache::Key};

#[cfg(test)]
mod tests;

const MAGIC: &[u8; 16] = b"skysail-code v2\n";
/// Magic, keyed hash, CPU time in microseconds, memory in bytes.
const HEAD_BYTES: usize = MAGIC.len() + TAG_BYTES + 8 + 8;
const TAG_BYTES: usize = 32;
/// The maximum number of bytes of machine code in one file, as in the cache in memory.
const CODE_BYTES_MAX: u64 = 64 << 20;
/// Version of the admission rules. Change it when the rules refuse a component that they admitted
/// before.
const RULES: &str = "admission rules 1";

/// See the module.
pub(super) struct Disk {
    folder: PathBuf,
    bytes_max: u64,
    key: hmac::Key,
}

impl Disk {
    /// Opens the folder, and creates it if it does not exist. The caller guarantees that no other
    /// process uses it.
    pub(super) fn open(folder: PathBuf, bytes_max: u64, key: &[u8; 32]) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        check_permissions(&fs::symlink_metadata(&folder)?, WRITE)?;
        for path in files(&folder)?.filter(|path| path.extension().is_some_and(|extension| extension == "new")) {
            fs::remove_file(path)?;
        }
        Ok(Self { folder, bytes_max, key: hmac::Key::new(hmac::HMAC_SHA256, key) })
    }

    /// The machine code, if its compilation was within `limits`.
    pub(super) fn get(&self, key: &Key, limits: CompileLimits) -> Option<(Vec<u8>, CompileCost)> {
        let path = self.path(key);
        let mut bytes = match read_own_file(&path, CODE_BYTES_MAX + HEAD_BYTES as u64, WRITE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "machine code on disk cannot be read: the component is compiled again");
                return None;
            }
        };
        let Some(cost) = self.cost(key, &bytes) else {
            tracing::warn!(file = %path.display(), "machine code on disk is damaged or was not written by this manager: the component is compiled again");
            return None;
        };
        if !cost.is_within(limits) {
            return None;
        }
        bytes.drain(..HEAD_BYTES);
        Some((bytes, cost))
    }

    /// Stores the machine code. A failure is logged; the next start then compiles again.
    pub(super) fn put(&self, key: &Key, code: &[u8], cost: CompileCost) {
        if code.len() as u64 > CODE_BYTES_MAX.min(self.bytes_max) {
            return;
        }
        if let Err(error) = self.write(key, code, cost) {
            tracing::warn!(folder = %self.folder.display(), %error, "machine code cannot be stored on disk: the next start compiles the component again");
        }
    }

    /// Writes the pieces of the record one after the other: joined, they would be a copy of the
    /// machine code, which is megabytes.
    fn write(&self, key: &Key, code: &[u8], cost: CompileCost) -> io::Result<()> {
        let cpu = u64::try_from(cost.cpu.as_micros()).unwrap_or(u64::MAX).to_le_bytes();
        let memory = cost.memory_bytes.to_le_bytes();
        let tag = hmac::sign(&self.key, digest_of(key, &[&cpu, &memory, code]).as_ref());
        self.make_room((HEAD_BYTES + code.len()) as u64)?;
        write_own_file(&self.path(key), &self.folder, &[MAGIC, tag.as_ref(), &cpu, &memory, code])
    }

    fn make_room(&self, needed: u64) -> io::Result<()> {
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for path in files(&self.folder)?.filter(|path| path.extension().is_some_and(|extension| extension == "code")) {
            let metadata = fs::symlink_metadata(&path)?;
            kept.push((metadata.modified()?, metadata.len(), path));
        }
        kept.sort();
        let mut sum: u64 = kept.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in kept {
            if sum + needed <= self.bytes_max {
                break;
            }
            fs::remove_file(path)?;
            sum -= size;
        }
        Ok(())
    }

    /// The cost of the compilation, if the keyed hash is valid.
    fn cost(&self, key: &Key, bytes: &[u8]) -> Option<CompileCost> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (tag, rest) = rest.split_at_checked(TAG_BYTES)?;
        hmac::verify(&self.key, digest_of(key, &[rest]).as_ref(), tag).ok()?;
        let (cpu, rest) = rest.split_first_chunk::<8>()?;
        let (memory, _) = rest.split_first_chunk::<8>()?;
        let cpu = Duration::from_micros(u64::from_le_bytes(*cpu));
        Some(CompileCost { cpu, memory_bytes: u64::from_le_bytes(*memory) })
    }

    /// The file of one component and engine. The keyed hash authenticates its content.
    fn path(&self, key: &Key) -> PathBuf {
        let name = hmac::sign(&self.key, digest_of(key, &[b"name"]).as_ref());
        let hex = name.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        self.folder.join(format!("{hex}.code"))
    }
}

/// The digest of everything that the keyed hash covers; the pieces of `rest` are one part. Nothing
/// is copied: machine code is megabytes.
fn digest_of(key: &Key, rest: &[&[u8]]) -> digest::Digest {
    let Key { digest, compatibility } = key;
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let parts: [&[&[u8]]; 5] = [&[RULES.as_bytes()], &[version], &[digest], &[&compatibility.to_le_bytes()], rest];
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        // Hash the length of each part, too, so that bytes cannot move from one part to the next.
        let length: usize = part.iter().map(|piece| piece.len()).sum();
        context.update(&(length as u64).to_le_bytes());
        part.iter().for_each(|piece| context.update(piece));
    }
    context.finish()
}

fn files(folder: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    // Directories that this process did not make are left alone.
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_dir());
    Ok(entries.into_iter().filter(is_file).map(|entry| entry.path()))
}
