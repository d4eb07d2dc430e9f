//! Tests of the archive after a crash, and after changes by other accounts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use rustix::process::geteuid;
use skysail_test_support::killed::{self, give_sign};
use tempfile::TempDir;

use super::{Archive, ArchiveError, AtFlags, CWD, NEW, Quarantined, StatxAttributes, StatxFlags, check_writers, statx};
use crate::{Digest, SourceFile};

const SOURCE: &str = "oci ghcr.io/org/provider:v1";
const MAX: u64 = 1 << 20;

fn offer(text: &str) -> SourceFile {
    let bytes = Bytes::from(text.to_owned());
    SourceFile { digest: Digest::of(&bytes), bytes, origin: "oci ghcr.io/org/provider:v1".to_owned() }
}

fn open(folder: &Path) -> Archive {
    Archive::open(folder.to_owned(), MAX).unwrap()
}

fn text(archive: &Archive, provider: &str) -> Option<String> {
    let offer = archive.get(provider, SOURCE, MAX)?;
    Some(String::from_utf8(offer.bytes.to_vec()).unwrap())
}

fn components(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder.join("components")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_last_component_is_kept_over_a_restart_and_the_one_before_it_is_not() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    assert_eq!(text(&archive, "a"), None);
    archive.put("a", SOURCE, &offer("one")).unwrap();
    archive.put("b", SOURCE, &offer("one")).unwrap();
    archive.put("a", SOURCE, &offer("two")).unwrap();
    archive.put("a", SOURCE, &offer("three")).unwrap();
    drop(archive);
    let archive = open(folder.path());
    assert_eq!((text(&archive, "a").as_deref(), text(&archive, "b").as_deref()), (Some("three"), Some("one")));
    assert_eq!(archive.get("a", SOURCE, MAX).unwrap().origin, "oci ghcr.io/org/provider:v1 (kept on disk)");
    let again = archive.get("a", SOURCE, MAX).unwrap();
    archive.put("a", SOURCE, &again).unwrap();
    assert_eq!(archive.get("a", SOURCE, MAX).unwrap().origin, again.origin);
    archive.retain(|provider| provider == "b").unwrap();
    assert_eq!(text(&archive, "a"), None);
    archive.put("b", SOURCE, &offer("four")).unwrap();
    assert!(components(folder.path()).len() <= 2, "only the current and the previous component");
}

#[test]
fn a_pipe_or_a_link_in_place_of_the_lock_is_refused_at_once() {
    let folder = TempDir::new().unwrap();
    drop(open(folder.path()));
    let (lock, elsewhere) = (folder.path().join("lock"), folder.path().join("elsewhere"));
    let refused = || Archive::open(folder.path().to_owned(), MAX).unwrap_err();
    fs::remove_file(&lock).unwrap();
    symlink(&elsewhere, &lock).unwrap();
    assert!(matches!(refused(), ArchiveError::Io { path, .. } if path == lock));
    assert!(!elsewhere.exists(), "the link is not followed");
    fs::remove_file(&lock).unwrap();
    assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
    assert!(matches!(refused(), ArchiveError::Io { path, .. } if path == lock));
}

#[test]
fn a_component_of_another_source_is_not_used_for_the_provider() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    archive.put("a", SOURCE, &offer("one")).unwrap();
    assert!(archive.get("a", "oci elsewhere", MAX).is_none());
}

#[test]
fn a_changed_component_a_broken_record_a_link_and_a_pipe_are_refused() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    let put = |text: &str| {
        archive.put("a", SOURCE, &offer(text)).unwrap();
        components(folder.path()).into_iter().find(|path| fs::read(path).unwrap() == text.as_bytes()).unwrap()
    };
    let path = put("one");
    fs::write(&path, "One").unwrap();
    assert_eq!(text(&archive, "a"), None, "another content");
    let path = put("two");
    fs::remove_file(&path).unwrap();
    assert_eq!(text(&archive, "a"), None, "none at all");
    let path = put("two");
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(text(&archive, "a"), None, "a link to the right content");
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(text(&archive, "a"), None, "a pipe without a writer");
    fs::remove_file(&path).unwrap();
    let record = folder.path().join("providers/a.json");
    for broken in ["", "{", "[]", r#"{"digest":"../../lock","origin":"","source":"oci ghcr.io/org/provider:v1"}"#] {
        fs::write(&record, broken).unwrap();
        assert_eq!(text(&archive, "a"), None, "{broken}");
    }
    put("three");
    assert_eq!(text(&archive, "a").as_deref(), Some("three"), "a put repairs the component");
}

/// Otherwise an account with write access to a shared volume could choose the component that serves
/// before the registry answers.
#[test]
fn a_record_without_an_hmac_by_this_folders_key_for_this_provider_is_refused() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let record = |folder: &TempDir, provider: &str| folder.path().join(format!("providers/{provider}.json"));
    let archive = open(folder.path());
    archive.put("a", SOURCE, &offer("one")).unwrap();
    let genuine = fs::read_to_string(record(&folder, "a")).unwrap();
    let unsigned = serde_json::from_str::<serde_json::Value>(&genuine).unwrap()["content"].to_string();
    let stranger = open(other.path());
    stranger.put("a", SOURCE, &offer("one")).unwrap();
    let with_another_key = fs::read_to_string(record(&other, "a")).unwrap();
    for planted in [genuine.replace("ghcr.io", "evil.io"), unsigned, with_another_key] {
        fs::write(record(&folder, "a"), &planted).unwrap();
        for source in [SOURCE, "oci evil.io/org/provider:v1"] {
            assert!(archive.get("a", source, MAX).is_none(), "{planted}");
        }
    }
    fs::write(record(&folder, "a"), &genuine).unwrap();
    assert_eq!(text(&archive, "a").as_deref(), Some("one"));
    fs::copy(record(&folder, "a"), record(&folder, "b")).unwrap();
    assert_eq!(text(&archive, "b"), None, "another provider's");
    fs::copy(record(&folder, "a"), folder.path().join("quarantine/a.json")).unwrap();
    assert_eq!(archive.quarantined("a"), []);
}

#[test]
fn a_file_that_other_accounts_may_write_is_refused() {
    let folder = TempDir::new().unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let archive = open(folder.path());
    archive.put("a", SOURCE, &offer("one")).unwrap();
    for file in [folder.path().join("providers/a.json"), components(folder.path()).remove(0)] {
        mode(&file, 0o606);
        assert_eq!(text(&archive, "a"), None, "{}", file.display());
        // The mode that Kubernetes sets for `fsGroup`.
        mode(&file, 0o660);
        assert_eq!(text(&archive, "a").as_deref(), Some("one"));
    }
    drop(archive);
    for name in ["components", "providers", "quarantine", NEW] {
        let path = folder.path().join(name);
        mode(&path, 0o707);
        let error = Archive::open(folder.path().to_owned(), MAX).unwrap_err();
        assert!(matches!(&error, ArchiveError::Io { path: at, .. } if *at == path), "{error}");
        mode(&path, 0o2770);
    }
}

/// Otherwise such an account could remove the quarantine, or restore a record of before.
#[test]
fn a_state_folder_whose_content_other_accounts_may_exchange_is_refused() {
    let folder = TempDir::new().unwrap();
    let open = || Archive::open(folder.path().to_owned(), MAX);
    let mode = |mode| fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    for shared in [0o707, 0o777, 0o702] {
        mode(shared);
        let error = open().unwrap_err();
        assert!(matches!(&error, ArchiveError::Io { path, .. } if path == folder.path()), "{shared:o}: {error}");
        let entries = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(entries, 0, "nothing is written there");
        // As the mount point of an emptyDir.
        check_writers(&fs::metadata(folder.path()).unwrap(), true).unwrap();
    }
    for safe in [0o700, 0o755, 0o1777, 0o2770] {
        mode(safe);
        drop(open().unwrap());
    }
    if geteuid().is_root() {
        chown(folder.path(), Some(12345), None).unwrap();
        let error = format!("{:?}", open().unwrap_err());
        assert!(error.contains("it belongs to user 12345"), "{error}");
        check_writers(&fs::metadata(folder.path()).unwrap(), true).unwrap_err();
    }
    let is_mount_point = |path: &str| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).unwrap();
        found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    };
    assert!(is_mount_point("/proc") && !is_mount_point("/proc/self"));
}

#[test]
fn a_key_that_is_truncated_a_link_or_readable_by_others_is_replaced_and_its_records_are_refused() {
    let folder = TempDir::new().unwrap();
    let key = folder.path().join("key");
    let damages: [&dyn Fn(); 4] = [
        &|| fs::set_permissions(&key, Permissions::from_mode(0o604)).unwrap(),
        &|| fs::set_permissions(&key, Permissions::from_mode(0o602)).unwrap(),
        &|| fs::write(&key, "cut").unwrap(),
        &|| {
            fs::rename(&key, folder.path().join("elsewhere")).unwrap();
            symlink(folder.path().join("elsewhere"), &key).unwrap();
        },
    ];
    for damage in damages {
        open(folder.path()).put("a", SOURCE, &offer("one")).unwrap();
        let archive = open(folder.path());
        let before = *archive.key();
        assert_eq!(text(&archive, "a").as_deref(), Some("one"));
        drop(archive);
        damage();
        let archive = open(folder.path());
        assert_eq!(text(&archive, "a"), None);
        assert_ne!(*archive.key(), before);
        let metadata = fs::symlink_metadata(&key).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o077 == 0, "{metadata:?}");
    }
}

/// A restart may need a release that was offered and passed probation again.
#[test]
fn storing_the_same_release_again_repairs_a_damaged_component() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    archive.put("a", SOURCE, &offer("one")).unwrap();
    let path = components(folder.path()).remove(0);
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "one").unwrap();
    let damages: [&dyn Fn(); 4] = [
        &|| fs::write(&path, "One").unwrap(),
        &|| fs::write(&path, "").unwrap(),
        &|| fs::remove_file(&path).unwrap(),
        &|| {
            fs::remove_file(&path).unwrap();
            symlink(&elsewhere, &path).unwrap();
        },
    ];
    for damage in damages {
        damage();
        assert_eq!(text(&archive, "a"), None);
        archive.put("a", SOURCE, &offer("one")).unwrap();
        assert_eq!(text(&archive, "a").as_deref(), Some("one"));
    }
    assert_eq!(fs::read(&elsewhere).unwrap(), b"one", "the target of a link is not changed");
}

#[test]
fn a_failed_write_leaves_no_file_behind_and_a_foreign_folder_stays() {
    let folder = TempDir::new().unwrap();
    for ours in ["components", "new", "providers"] {
        fs::create_dir_all(folder.path().join(ours).join("sub")).unwrap();
    }
    let archive = open(folder.path());
    archive.put("a", SOURCE, &offer("one")).unwrap();
    assert_eq!(text(&archive, "a").as_deref(), Some("one"));
    // A folder has the name of the new file, so that only the final rename fails.
    let in_the_way = folder.path().join("components").join(format!("{}.wasm", offer("two").digest.hex()));
    fs::create_dir(in_the_way).unwrap();
    archive.put("a", SOURCE, &offer("two")).unwrap_err();
    assert_eq!(new_files(&folder.path().join(NEW)), 0);
    assert_eq!(text(&archive, "a").as_deref(), Some("one"));
}

#[test]
fn a_component_above_the_limit_is_not_read() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    archive.put("a", SOURCE, &offer("twelve bytes")).unwrap();
    assert!(archive.get("a", SOURCE, 12).is_some());
    assert!(archive.get("a", SOURCE, 11).is_none());
}

#[test]
fn the_folder_has_a_limit_and_its_content_stays_when_the_limit_is_reached() {
    let folder = TempDir::new().unwrap();
    let archive = Archive::open(folder.path().to_owned(), 10).unwrap();
    archive.put("a", SOURCE, &offer("four")).unwrap();
    let error = archive.put("b", SOURCE, &offer("seven b")).unwrap_err();
    assert!(matches!(error, ArchiveError::Full { needed: 11, max: 10, .. }), "{error}");
    assert_eq!((text(&archive, "a").as_deref(), text(&archive, "b")), (Some("four"), None));
    archive.put("b", SOURCE, &offer("six by")).unwrap();
    assert_eq!(text(&archive, "b").as_deref(), Some("six by"));
}

#[test]
fn the_quarantine_keeps_its_entries_and_drops_the_oldest_beyond_its_limit() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    let entry = |n: usize| Quarantined {
        digest: Digest::of(&[u8::try_from(n).unwrap()]).to_string(),
        reason: n.to_string(),
        retried: n.is_multiple_of(2),
    };
    for n in 0..=Archive::QUARANTINED_MAX {
        archive.quarantine("a", entry(n)).unwrap();
    }
    archive.quarantine("a", entry(1)).unwrap();
    drop(archive);
    let archive = open(folder.path());
    let reasons: Vec<_> = archive.quarantined("a").into_iter().map(|entry| entry.reason).collect();
    assert_eq!((reasons.len(), reasons.first().unwrap().as_str(), reasons.last().unwrap().as_str()), (32, "2", "1"));
    assert_eq!(archive.quarantined("b"), []);
    archive.retain(|_| false).unwrap();
    assert_eq!(archive.quarantined("a"), []);
}

#[test]
fn a_component_that_passes_probation_leaves_the_quarantine() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    let (one, two) = (offer("one"), offer("two"));
    for offer in [&one, &two] {
        let (digest, reason) = (offer.digest.to_string(), "it trapped".to_owned());
        archive.quarantine("a", Quarantined { digest, reason, retried: false }).unwrap();
    }
    archive.put("a", SOURCE, &one).unwrap();
    let left: Vec<_> = archive.quarantined("a").into_iter().map(|entry| entry.digest).collect();
    assert_eq!(left, [two.digest.to_string()]);
}

/// The variable that makes a test the second process; its value is the first process's folder.
const SECOND: &str = "SKYSAIL_TEST_ARCHIVE_SECOND";
/// Exit code of a second process that found the folder locked.
const FOUND_LOCKED: i32 = 9;

/// Whether another process can open the folder.
fn is_free(folder: &Path) -> bool {
    let mut second = Command::new(std::env::current_exe().unwrap());
    second.args(["--exact", "archive::tests::two_processes_do_not_share_a_folder"]).env(SECOND, folder);
    let status = second.stdout(Stdio::null()).status().unwrap();
    assert!(status.success() || status.code() == Some(FOUND_LOCKED), "{status}");
    status.success()
}

#[test]
fn two_processes_do_not_share_a_folder() {
    if let Some(folder) = std::env::var_os(SECOND) {
        match Archive::open(folder.into(), MAX) {
            Err(ArchiveError::Locked { .. }) => std::process::exit(FOUND_LOCKED),
            opened => drop(opened.unwrap()),
        }
        return;
    }
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    assert!(!is_free(folder.path()));
    drop(archive);
    assert!(is_free(folder.path()));
}

/// Between fork and exec, a child process has a copy of each descriptor of its parent.
#[test]
fn a_child_process_with_a_copy_of_the_locks_descriptor_does_not_keep_the_folder_locked() {
    let folder = TempDir::new().unwrap();
    let archive = open(folder.path());
    let copy = archive._lock.try_clone().unwrap();
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(copy).spawn().unwrap();
    drop(archive);
    assert!(is_free(folder.path()));
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Environment variable that turns this test binary into the child to be killed; its value is the
/// archive's directory.
const WRITER: &str = "SKYSAIL_TEST_ARCHIVE_WRITER";
/// The test that the writer runs.
const TEST: &str = "archive::tests::a_kill_at_any_moment_leaves_a_complete_release";

/// Kills the process at 200 moments while it stores and quarantines releases as fast as the disk
/// allows. A process that opens the folder afterwards finds a complete release, at most one older
/// than the last known one, and all quarantined releases except one whose write was interrupted.
#[test]
fn a_kill_at_any_moment_leaves_a_complete_release() {
    if let Some(folder) = std::env::var_os(WRITER) {
        write_until_killed(Path::new(&folder));
    }
    let folder = TempDir::new().unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut last, mut cut) = (0, 0);
    for kill in 0..200 {
        killed::start_and_kill(TEST, WRITER, folder.path(), &mut random).unwrap();
        cut += new_files(&folder.path().join(NEW));
        let archive = open(folder.path());
        let Some(text) = text(&archive, "a") else {
            assert_eq!(last, 0, "kill {kill}: the release was lost");
            continue;
        };
        let number: u64 = text.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(text, release(number), "kill {kill}");
        assert!(number >= last, "kill {kill}: {number} came back after {last}");
        last = number;
        let rolled_back = archive.quarantined("a");
        // Each release is quarantined right after it was stored.
        let under_way = u64::from(rolled_back.last() != Some(&bad(number)));
        let until = number - under_way;
        let from = until.saturating_sub(Archive::QUARANTINED_MAX as u64) + 1;
        assert_eq!(rolled_back, (from..=until).map(bad).collect::<Vec<_>>(), "kill {kill}");
    }
    assert!(last > 0 && cut > 0, "{last} releases were written completely, {cut} writes were interrupted");
}

/// Interrupted writes: complete files are in other folders.
fn new_files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
}

/// Long enough that a kill can interrupt the write.
fn release(number: u64) -> String {
    format!("{number} ") + &"x".repeat(300_000)
}

fn bad(number: u64) -> Quarantined {
    Quarantined { digest: format!("sha256:{number:064x}"), reason: "it traps".to_owned(), retried: false }
}

/// Gives one sign before it opens the folder, and one after each release.
fn write_until_killed(folder: &Path) -> ! {
    give_sign().unwrap();
    let archive = open(folder);
    let mut number = text(&archive, "a").map_or(0, |text| text.split(' ').next().unwrap().parse().unwrap());
    loop {
        if number > 0 {
            archive.quarantine("a", bad(number)).unwrap();
        }
        number += 1;
        archive.put("a", SOURCE, &offer(&release(number))).unwrap();
        give_sign().unwrap();
    }
}
