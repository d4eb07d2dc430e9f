//! Tests of the file source with real files, links and notifications.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use expect_test::{Expect, expect};
use tempfile::TempDir;
use tokio::{sync::Notify, time};

use super::{FileSource, FileSourceSettings, Watches};
use crate::{Digest, Offers, SourceError, SourceFile};

/// The timeout of every wait, far longer than any wait on a working machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A poll period longer than any test, so that only notifications find a change.
const NO_POLL: FileSourceSettings =
    FileSourceSettings { poll: Duration::from_secs(3600), settle: Duration::from_millis(50), bytes_max: 1 << 20 };

fn watch(path: &Path) -> Offers {
    FileSource::new(path.to_owned(), NO_POLL).watch()
}

async fn next(offers: &mut Offers) -> Result<SourceFile, SourceError> {
    time::timeout(PATIENCE, offers.next()).await.expect("a report must come").expect("the source must live")
}

async fn offered(offers: &mut Offers) -> Vec<u8> {
    let offer = next(offers).await.unwrap();
    assert_eq!(offer.digest, Digest::of(&offer.bytes));
    offer.bytes.to_vec()
}

async fn refused(offers: &mut Offers, dir: &TempDir, expect: Expect) {
    let error = next(offers).await.expect_err("the source must have nothing to offer");
    expect.assert_eq(&format!("{}: {}", error.category(), error).replace(dir.path().to_str().unwrap(), "DIR"));
}

fn replace(path: &Path, content: impl AsRef<[u8]>) {
    let partial = path.with_extension("partial");
    fs::write(&partial, content).unwrap();
    fs::rename(partial, path).unwrap();
}

/// Updates a ConfigMap volume as the kubelet does: a new folder, a new link beside the old one, one
/// rename, removal of the old folder.
fn project(mount: &Path, generation: &str, content: &str) {
    let old = fs::read_link(mount.join("..data")).ok();
    fs::create_dir(mount.join(generation)).unwrap();
    fs::write(mount.join(generation).join("provider.wasm"), content).unwrap();
    symlink(generation, mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    if let Some(old) = old {
        fs::remove_dir_all(mount.join(old)).unwrap();
    } else {
        symlink("..data/provider.wasm", mount.join("provider.wasm")).unwrap();
    }
}

#[tokio::test]
async fn a_rename_over_the_file_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.wasm");
    fs::write(&path, "one").unwrap();
    let mut offers = watch(&path);
    assert_eq!(offered(&mut offers).await, b"one");
    for content in ["two", "three"] {
        replace(&path, content);
        assert_eq!(offered(&mut offers).await, content.as_bytes());
    }
}

#[tokio::test]
async fn each_swap_of_a_config_maps_data_link_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    project(dir.path(), "..2026_1", "one");
    let mut offers = watch(&dir.path().join("provider.wasm"));
    assert_eq!(offered(&mut offers).await, b"one");
    for n in 2..5 {
        project(dir.path(), &format!("..2026_{n}"), &format!("content {n}"));
        assert_eq!(offered(&mut offers).await, format!("content {n}").as_bytes());
    }
}

/// As after `rm -rf build && mkdir build`: on many file systems the new folder has the inode of the
/// old one, but none of its watches.
#[tokio::test]
async fn a_folder_that_is_removed_and_created_again_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("build");
    let path = folder.join("p.wasm");
    fs::create_dir(&folder).unwrap();
    fs::write(&path, "one").unwrap();
    let mut offers = watch(&path);
    assert_eq!(offered(&mut offers).await, b"one");
    for round in 0..5 {
        fs::remove_file(&path).unwrap();
        fs::remove_dir(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        replace(&path, format!("made again {round}"));
        assert_eq!(offered(&mut offers).await, format!("made again {round}").as_bytes());
        replace(&path, format!("saved {round}"));
        assert_eq!(offered(&mut offers).await, format!("saved {round}").as_bytes());
    }
}

/// On the paused clock no pause of the writer is longer than it should be, however busy the machine
/// is.
#[tokio::test(start_paused = true)]
async fn a_copy_in_place_is_offered_whole_and_never_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.wasm");
    fs::write(&path, "old").unwrap();
    let wake = Arc::new(Notify::new());
    let mut offers = FileSource::new(path.clone(), NO_POLL).watch_with(Arc::clone(&wake), Watches::none());
    assert_eq!(offered(&mut offers).await, b"old");
    // Pieces with pauses shorter than the settle time, together longer than it: a reading in
    // between sees a prefix.
    let mut file = fs::File::create(&path).unwrap();
    let mut written = Vec::new();
    for piece in 0..40u8 {
        let piece = vec![piece; 4096];
        file.write_all(&piece).unwrap();
        written.extend(piece);
        wake.notify_one();
        time::sleep(NO_POLL.settle / 10).await;
    }
    assert_eq!(offered(&mut offers).await, written);
}

#[tokio::test]
async fn a_file_that_is_missing_at_the_start_is_offered_when_it_appears_even_if_its_folder_was_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("later/still-later/p.wasm");
    let mut offers = watch(&path);
    refused(&mut offers, &dir, expect!["SourceMissing: file DIR/later/still-later/p.wasm is missing; create it, or correct the path; the manager uses it as soon as it exists"]).await;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    replace(&path, "here");
    assert_eq!(offered(&mut offers).await, b"here");
}

#[tokio::test]
async fn the_error_of_an_unreadable_empty_or_large_file_names_the_path_the_reason_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.wasm");
    fs::write(dir.path().join("provider.wasm"), "the neighbour").unwrap();
    let mut offers = watch(&path);
    refused(&mut offers, &dir, expect!["SourceMissing: file DIR/p.wasm is missing (the folder has: provider.wasm); create it, or correct the path; the manager uses it as soon as it exists"]).await;
    fs::create_dir(&path).unwrap();
    refused(
        &mut offers,
        &dir,
        expect!["SourceNotAFile: DIR/p.wasm is not a regular file but a directory; name the component's file"],
    )
    .await;
    fs::remove_dir(&path).unwrap();
    replace(&path, "");
    refused(&mut offers, &dir, expect!["SourceEmpty: file DIR/p.wasm is empty; write the component to another file in the same directory, then rename that file to DIR/p.wasm"]).await;
    let large = dir.path().join("large");
    fs::File::create(&large).unwrap().set_len(100 << 20).unwrap();
    fs::rename(&large, &path).unwrap();
    refused(&mut offers, &dir, expect![[r#"SourceTooLarge: file DIR/p.wasm has 104857600 bytes, and the limit componentBytes is 1048576; build the component smaller (release profile, opt-level "s", stripped), or raise the limit"#]]).await;
    fs::remove_file(&path).unwrap();
    symlink("p.wasm", &path).unwrap();
    refused(
        &mut offers,
        &dir,
        expect![
            "SourceUnreadable: file DIR/p.wasm cannot be read; check its permissions and those of the folders above it"
        ],
    )
    .await;
    replace(&path, "good");
    assert_eq!(offered(&mut offers).await, b"good");
}

#[tokio::test]
async fn a_file_without_an_end_is_read_no_further_than_the_limit() {
    // Reports no size and never ends.
    let error = super::read::read(Path::new("/proc/self/maps"), 64).unwrap_err();
    assert!(matches!(error, SourceError::TooLarge { size: 65, max: 64, .. }), "{error}");
    let error = super::read::read(Path::new("/dev/zero"), 64).unwrap_err();
    assert!(matches!(error, SourceError::NotAFile { kind: "a device", .. }), "{error}");
    // A pipe without a writer: a plain `open` would wait for one.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = super::read::read(&pipe, 64).unwrap_err();
    assert!(matches!(error, SourceError::NotAFile { kind: "a pipe", .. }), "{error}");
}

#[tokio::test]
async fn the_same_content_saved_again_is_not_offered_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.wasm");
    fs::write(&path, "one").unwrap();
    let mut offers = watch(&path);
    assert_eq!(offered(&mut offers).await, b"one");
    for _ in 0..5 {
        replace(&path, "one");
        tokio::task::yield_now().await;
    }
    replace(&path, "two");
    assert_eq!(offered(&mut offers).await, b"two", "the next report must be the next content");
}

#[tokio::test(start_paused = true)]
async fn the_poll_finds_a_change_without_a_notification() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("p.wasm");
    fs::write(&path, "one").unwrap();
    let settings = FileSourceSettings { bytes_max: 1 << 20, ..FileSourceSettings::default() };
    let source = FileSource::new(path.clone(), settings);
    let start = time::Instant::now();
    let mut offers = source.watch_with(Arc::new(Notify::new()), Watches::none());
    assert_eq!(offers.next().await.unwrap().unwrap().bytes, "one");
    fs::write(&path, "two").unwrap();
    assert_eq!(offers.next().await.unwrap().unwrap().bytes, "two");
    let passed = start.elapsed();
    assert!(passed >= Duration::from_secs(30) && passed < Duration::from_secs(31), "found after {passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_continuously_is_reported_and_offered_once_it_stays_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("p.wasm");
    fs::write(&path, "0").unwrap();
    let source = FileSource::new(path.clone(), FileSourceSettings::default());
    let mut offers = source.watch_with(Arc::new(Notify::new()), Watches::none());
    let mut length = 0;
    let mut restless = time::interval(Duration::from_millis(10));
    let report = loop {
        tokio::select! {
            report = offers.next() => break report.unwrap(),
            _ = restless.tick() => {
                length += 1;
                fs::write(&path, vec![b'x'; length]).unwrap();
            }
        }
    };
    assert!(matches!(report, Err(SourceError::Unsettled { .. })), "{report:?}");
    assert_eq!(offers.next().await.unwrap().unwrap().bytes.len(), length);
}

/// On the paused clock only the settle time passes.
#[tokio::test(start_paused = true)]
async fn a_renamed_file_is_offered_at_once_and_a_written_file_after_the_settle_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.wasm");
    fs::write(&path, "one").unwrap();
    let (wake, watches) = (Arc::new(Notify::new()), Watches::none());
    let seen = watches.seen();
    let mut offers = FileSource::new(path.clone(), NO_POLL).watch_with(Arc::clone(&wake), watches);
    assert_eq!(offered(&mut offers).await, b"one");
    for (content, replaced, rest) in [("two", true, Duration::ZERO), ("three", false, NO_POLL.settle)] {
        replace(&path, content);
        seen.lock().unwrap().replaced = replaced;
        let start = time::Instant::now();
        wake.notify_one();
        assert_eq!(offered(&mut offers).await, content.as_bytes());
        assert_eq!(start.elapsed(), rest, "{content}");
    }
}

/// The notifications of the kernel for each way to replace a file.
#[tokio::test]
async fn only_a_rename_and_a_swapped_link_count_as_a_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, path) = (dir.path().join("mount"), dir.path().join("p.wasm"));
    fs::create_dir(&mount).unwrap();
    project(&mount, "..2026_1", "one");
    fs::write(&path, "one").unwrap();

    let key = watched(&mount.join("provider.wasm"));
    project(&mount, "..2026_2", "two");
    until(&key, true).await;

    let file = watched(&path);
    replace(&path, "two");
    until(&file, true).await;
    replace(&path, "three");
    until(&file, true).await;
    fs::write(&path, "three, and more by who had it open").unwrap();
    until(&file, false).await;
    for change in ["moved away", "a new file", "a copy in place"] {
        file.seen().lock().unwrap().replaced = true;
        match change {
            "moved away" => fs::rename(&path, dir.path().join("elsewhere")).unwrap(),
            _ => fs::write(&path, change).unwrap(),
        }
        until(&file, false).await;
    }
}

fn watched(path: &Path) -> Watches {
    let mut watches = Watches::new(Arc::default());
    watches.follow(path);
    watches
}

async fn until(watches: &Watches, replaced: bool) {
    let seen = watches.seen();
    let told = time::timeout(PATIENCE, async {
        while seen.lock().unwrap().replaced != replaced {
            tokio::task::yield_now().await;
        }
    });
    told.await.expect("a notification must come");
}

#[tokio::test]
async fn dropping_the_stream_ends_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let wake = Arc::new(Notify::new());
    let alive = Arc::downgrade(&wake);
    let source = FileSource::new(dir.path().join("p.wasm"), NO_POLL);
    drop(source.watch_with(wake, Watches::none()));
    time::timeout(PATIENCE, async {
        while alive.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the task must end");
}
