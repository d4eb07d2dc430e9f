//! Notifications from the kernel for every directory on the path to a file that contains a link,
//! the file, or the first missing entry. A notification wakes the source and reports whether the
//! change was a rename; it decides nothing else. The poll finds an exchange of a folder above these
//! directories.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind, RenameMode},
};
use tokio::sync::Notify;

/// Symlinks followed on the way to a file, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// Device and inode of a watched directory: a new directory under the same path has another inode
/// and is watched again.
type Identity = (u64, u64);

/// The directories that are watched at present.
pub(super) struct Watches {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, Identity>,
    seen: Arc<Mutex<Seen>>,
}

/// State that the source shares with the thread that receives notifications.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Names of files and links whose events wake the source; other files of the directory do not.
    names: BTreeSet<OsString>,
    /// Whether the newest change replaced the whole file by a rename.
    pub(super) replaced: bool,
    /// Whether an entry was removed or renamed. A directory's watch ends with the directory, and a
    /// new directory may have the same path and inode.
    gone: bool,
}

impl Watches {
    /// Notifies `wake` of every event that may concern the file. Without notifications the source
    /// depends on its poll.
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let heard = Arc::clone(&seen);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let mut seen = heard.lock().unwrap_or_else(PoisonError::into_inner);
            seen.gone |= event.as_ref().is_ok_and(is_removal_or_rename);
            match event {
                Ok(event) if !matters(&event, &seen.names) => return,
                Ok(event) => seen.note(&event),
                Err(_) => seen.replaced = false,
            }
            wake.notify_one();
        });
        let watcher = watcher
            .inspect_err(|error| {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "file notifications are not available; the file is only polled"
                );
            })
            .ok();
        Self { watcher, watched: BTreeMap::new(), seen }
    }

    /// No notifications at all, as on a network file system.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { watcher: None, watched: BTreeMap::new(), seen: Arc::default() }
    }

    /// The shared state, so that a test can act as the notification thread.
    #[cfg(test)]
    pub(super) fn seen(&self) -> Arc<Mutex<Seen>> {
        Arc::clone(&self.seen)
    }

    /// Whether the newest change since the last call was the rename of a complete file, link or
    /// folder; resets the flag.
    pub(super) fn take_replaced(&self) -> bool {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner).replaced)
    }

    /// Watches every directory on the path to `path`, following the current links, and no other.
    pub(super) fn follow(&mut self, path: &Path) {
        let Some(watcher) = &mut self.watcher else { return };
        let way = Way::to(path);
        let gone = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.names = way.names;
            std::mem::take(&mut seen.gone)
        };
        let wanted: BTreeMap<PathBuf, Identity> =
            way.directories.into_iter().filter_map(|dir| identity(&dir).map(|id| (dir, id))).collect();
        let stays = |dir: &PathBuf, id: &Identity| !gone && wanted.get(dir) == Some(id);
        for (dir, _) in self.watched.iter().filter(|(dir, id)| !stays(dir, id)) {
            // The watch of a removed directory has ended already, so an error is expected.
            if let Err(error) = watcher.unwatch(dir) {
                tracing::trace!(path = %dir.display(), error = &error as &dyn std::error::Error, "the watch had ended");
            }
        }
        self.watched.retain(|dir, id| stays(dir, id));
        for (dir, id) in wanted {
            if self.watched.contains_key(&dir) {
                continue;
            }
            match watcher.watch(&dir, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(dir, id);
                }
                // Tried again at the next wake; the poll covers the time between.
                Err(error) => {
                    tracing::debug!(path = %dir.display(), error = &error as &dyn std::error::Error, "the directory cannot be watched")
                }
            }
        }
    }
}

impl Seen {
    fn note(&mut self, event: &Event) {
        match event.kind {
            EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both)) => {
                // Of two paths the last is the new name.
                let new = event.paths.last().and_then(|path| path.file_name());
                self.replaced = new.is_some_and(|name| self.names.contains(name));
            }
            // A removal does not reset the flag: the kubelet removes the old folder after the
            // rename.
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {}
            _ => self.replaced = false,
        }
    }
}

fn is_removal_or_rename(event: &Event) -> bool {
    matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)))
}

/// Ignores opening and reading, because the source's own reading would wake it for ever.
fn matters(event: &Event, names: &BTreeSet<OsString>) -> bool {
    if let EventKind::Access(access) = event.kind
        && access != AccessKind::Close(AccessMode::Write)
    {
        return false;
    }
    let named = |path: &PathBuf| path.file_name().is_none_or(|name| names.contains(name));
    event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(named)
}

fn identity(dir: &Path) -> Option<Identity> {
    fs::metadata(dir).ok().filter(fs::Metadata::is_dir).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Everything that decides which file a path leads to.
#[derive(Debug, Default)]
struct Way {
    /// Directories that contain an entry on the path; their own paths have no links.
    directories: BTreeSet<PathBuf>,
    /// Names of those entries and of the directories.
    names: BTreeSet<OsString>,
}

impl Way {
    /// Resolves the path like the kernel. Each link adds its directory, and resolution continues at
    /// the target. It ends at the file or at the first missing entry, whose creation the directory
    /// above reports.
    fn to(path: &Path) -> Self {
        let mut way = Self::default();
        let mut rest: Vec<OsString> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
        let mut here = PathBuf::from(".");
        let mut links = 0;
        while let Some(part) = rest.pop() {
            let next = here.join(&part);
            if let Ok(target) = fs::read_link(&next) {
                links += 1;
                way.add(&here, &part);
                if links > LINKS_MAX {
                    break;
                }
                rest.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
                continue;
            }
            // The last entry is the file itself; a missing entry has to be created first.
            if rest.is_empty() || !next.exists() {
                way.add(&here, &part);
                break;
            }
            here = next;
        }
        way
    }

    fn add(&mut self, directory: &Path, name: &OsString) {
        self.names.insert(name.clone());
        // Events of the directory itself (moved, deleted) carry its own name.
        self.names.extend(directory.file_name().map(ToOwned::to_owned));
        self.directories.insert(directory.to_owned());
    }
}

/// Logs a warning if the file is a mount of its own: the kubelet never updates a `subPath` mount.
pub(super) fn warn_of_sub_path(path: &Path) {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return };
    if is_mounted_alone(&mounts, path) {
        tracing::warn!(
            path = %path.display(),
            "the component's file is a mount of its own (subPath?), which Kubernetes never updates; mount the whole directory",
        );
    }
}

/// Whether this file is a mount of its own. The kernel lists absolute paths without links, so the
/// path is resolved first.
fn is_mounted_alone(mountinfo: &str, path: &Path) -> bool {
    path.canonicalize().is_ok_and(|whole| whole.is_file() && is_mount_point(mountinfo, &whole))
}

/// Whether `path` is a mount point of this `/proc/self/mountinfo`; the fifth field is the mount
/// point, with blanks as `\040`.
fn is_mount_point(mountinfo: &str, path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let path = path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012");
    mountinfo.lines().any(|line| line.split(' ').nth(4) == Some(path.as_str()))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::Path};

    use super::{Way, is_mount_point, is_mounted_alone};

    #[test]
    fn the_way_to_a_key_of_a_config_map_leads_through_the_mount_and_the_folder_of_the_data() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().canonicalize().unwrap();
        std::fs::create_dir(mount.join("..2026_1")).unwrap();
        std::fs::write(mount.join("..2026_1/provider.wasm"), "x").unwrap();
        symlink("..2026_1", mount.join("..data")).unwrap();
        symlink("..data/provider.wasm", mount.join("provider.wasm")).unwrap();
        let way = Way::to(&mount.join("provider.wasm"));
        assert_eq!(way.directories.into_iter().collect::<Vec<_>>(), [mount.clone(), mount.join("..2026_1")]);
        for name in ["provider.wasm", "..data", "..2026_1"] {
            assert!(way.names.contains(std::ffi::OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_way_to_a_file_in_a_missing_folder_ends_at_the_nearest_folder_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let way = Way::to(&dir.path().join("later/still-later/provider.wasm"));
        assert_eq!(way.directories.iter().map(AsRef::as_ref).collect::<Vec<&Path>>(), [dir.path()]);
        assert!(way.names.contains(std::ffi::OsStr::new("later")));
    }

    #[test]
    fn a_circle_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        assert_eq!(Way::to(&dir.path().join("a")).directories.len(), 1);
    }

    #[test]
    fn a_file_that_is_a_mount_of_its_own_is_recognised() {
        let mountinfo =
            "30 23 0:26 / /tmp rw - tmpfs tmpfs rw\n31 23 8:1 /x /etc/my\\040app/p.wasm ro - ext4 /dev/sda1 rw\n";
        assert!(is_mount_point(mountinfo, Path::new("/etc/my app/p.wasm")));
        assert!(!is_mount_point(mountinfo, Path::new("/etc/my app/q.wasm")));
    }

    #[test]
    fn a_link_to_a_file_that_is_a_mount_of_its_own_is_one_too_and_a_mounted_folder_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().canonicalize().unwrap().join("provider.wasm");
        std::fs::write(&whole, "x").unwrap();
        symlink("provider.wasm", dir.path().join("link.wasm")).unwrap();
        std::fs::write(dir.path().join("other.wasm"), "x").unwrap();
        let mounted = |path: &Path| format!("31 23 8:1 /x {} ro - ext4 /dev/sda1 rw\n", path.display());
        for name in ["provider.wasm", "link.wasm", "./link.wasm"] {
            assert!(is_mounted_alone(&mounted(&whole), &dir.path().join(name)), "{name}");
        }
        assert!(!is_mounted_alone(&mounted(&whole), &dir.path().join("other.wasm")));
        assert!(!is_mounted_alone(&mounted(whole.parent().unwrap()), &whole));
        assert!(!is_mounted_alone(&mounted(whole.parent().unwrap()), whole.parent().unwrap()));
    }
}
