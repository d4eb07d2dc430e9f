//! Which files of the folder are trusted if another account may have changed them.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use skysail_test_support::killed::{self, give_sign};
use tempfile::TempDir;

use super::{CompileCost, CompileLimits, Disk, HEAD_BYTES, Key};

const LIMITS: CompileLimits =
    CompileLimits { component_bytes: 1 << 20, time: Duration::from_secs(1), memory_bytes: 1 << 20 };
const COST: CompileCost = CompileCost { cpu: Duration::from_millis(500), memory_bytes: 1 << 19 };

fn key(n: u8) -> Key {
    Key { digest: [n; 32], compatibility: 7 }
}

const KEY: [u8; 32] = [7; 32];

fn open(folder: &TempDir) -> Disk {
    Disk::open(folder.path().to_owned(), 1 << 20, &KEY).unwrap()
}

fn code(disk: &Disk, n: u8) -> Option<Vec<u8>> {
    disk.get(&key(n), LIMITS).map(|(code, _)| code)
}

fn the_file(folder: &TempDir) -> PathBuf {
    let mut files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "code")).unwrap()
}

#[test]
fn stored_machine_code_is_found_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let disk = open(&folder);
    assert_eq!(code(&disk, 1), None);
    disk.put(&key(1), b"code", COST);
    disk.put(&key(2), b"more code", COST);
    let disk = open(&folder);
    assert_eq!(disk.get(&key(1), LIMITS), Some((b"code".to_vec(), COST)));
    assert_eq!(code(&disk, 2).as_deref(), Some(&b"more code"[..]));
}

#[test]
fn a_file_with_a_changed_byte_is_not_used() {
    let folder = TempDir::new().unwrap();
    let disk = open(&folder);
    disk.put(&key(1), b"code", COST);
    let path = the_file(&folder);
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), HEAD_BYTES + 4);
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        fs::write(&path, changed).unwrap();
        assert_eq!(code(&disk, 1), None, "byte {place}");
    }
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(code(&disk, 1), None, "cut at {cut}");
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert_eq!(code(&disk, 1), None, "a byte more");
    fs::write(&path, &whole).unwrap();
    assert!(code(&disk, 1).is_some());
}

/// A copy of the file of another component or engine, and a file with another key.
#[test]
fn a_file_of_another_component_engine_or_key_is_not_used() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let disk = open(&folder);
    let stranger = Disk::open(other.path().to_owned(), 1 << 20, &[8; 32]).unwrap();
    disk.put(&key(1), b"one", COST);
    let one = disk.path(&key(1));
    fs::copy(&one, disk.path(&key(2))).unwrap();
    assert_eq!(code(&disk, 2), None);
    let engine = Key { compatibility: 8, ..key(1) };
    fs::copy(&one, disk.path(&engine)).unwrap();
    assert!(disk.get(&engine, LIMITS).is_none());
    fs::copy(&one, stranger.path(&key(1))).unwrap();
    assert_eq!(code(&stranger, 1), None);
}

#[test]
fn the_folder_has_a_limit_and_the_oldest_file_is_deleted_first() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::open(folder.path().to_owned(), 1000, &KEY).unwrap();
    for n in 1..=3 {
        disk.put(&key(n), &[n; 300], COST);
    }
    assert_eq!(code(&disk, 1), None);
    assert!(code(&disk, 2).is_some() && code(&disk, 3).is_some());
    disk.put(&key(4), &[4; 1001], COST);
    assert!(code(&disk, 4).is_none() && code(&disk, 3).is_some(), "machine code that can never fit must evict nothing");
}

#[test]
fn code_above_a_lowered_limit_is_not_used() {
    let folder = TempDir::new().unwrap();
    let disk = open(&folder);
    disk.put(&key(1), b"code", COST);
    assert!(disk.get(&key(1), CompileLimits { time: Duration::from_millis(499), ..LIMITS }).is_none());
    assert!(disk.get(&key(1), CompileLimits { memory_bytes: 1000, ..LIMITS }).is_none());
}

#[test]
fn a_link_a_folder_and_a_pipe_are_not_read() {
    let folder = TempDir::new().unwrap();
    let disk = open(&folder);
    disk.put(&key(1), b"code", COST);
    let (path, elsewhere) = (the_file(&folder), folder.path().join("elsewhere"));
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(code(&disk, 1), None, "a symbolic link, even to valid content");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(code(&disk, 1), None);
    fs::remove_dir(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(code(&disk, 1), None, "reading a named pipe without a writer must not block");
    fs::remove_file(&path).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    assert!(code(&disk, 1).is_some());
}

#[test]
fn files_that_other_accounts_may_write_are_not_trusted() {
    let folder = TempDir::new().unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let disk = open(&folder);
    disk.put(&key(1), b"code", COST);
    mode(&the_file(&folder), 0o606);
    assert_eq!(code(&disk, 1), None);
    // The mode that Kubernetes sets for `fsGroup`.
    mode(&the_file(&folder), 0o660);
    assert!(code(&disk, 1).is_some());
    mode(folder.path(), 0o707);
    let refused = Disk::open(folder.path().to_owned(), 1 << 20, &KEY).err().unwrap();
    assert!(refused.to_string().contains("mode 707"), "{refused}");
    mode(folder.path(), 0o2770);
    assert!(code(&open(&folder), 1).is_some());
}

#[test]
fn a_failed_write_leaves_no_file_and_foreign_folders_stay() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("x.new")).unwrap();
    let disk = open(&folder);
    disk.put(&key(1), b"code", COST);
    let path = the_file(&folder);
    fs::remove_file(&path).unwrap();
    // A folder has the name of the file: only the final rename fails.
    fs::create_dir(&path).unwrap();
    disk.put(&key(1), b"code", COST);
    assert_eq!(named(folder.path(), "new"), 1, "only the folder");
}

/// The variable with the folder to write to, which makes this test the process that is killed.
const WRITER: &str = "SKYSAIL_TEST_MACHINE_CODE_WRITER";
/// The test that the writer runs.
const TEST: &str = "jail::disk::tests::a_kill_at_any_moment_leaves_only_complete_files";

/// Sends SIGKILL at 200 moments while a process writes machine code as fast as the disk allows:
/// afterwards every file is complete, and no temporary file is left.
#[test]
fn a_kill_at_any_moment_leaves_only_complete_files() {
    if let Some(folder) = std::env::var_os(WRITER) {
        write_until_killed(Path::new(&folder));
    }
    let parent = TempDir::new().unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut whole, mut cut) = (0, 0);
    for kill in 0..200_u8 {
        // A new folder after every ten kills.
        let folder = parent.path().join((kill / 10).to_string());
        killed::start_and_kill(TEST, WRITER, &folder, &mut random).unwrap();
        cut += named(&folder, "new");
        let disk = Disk::open(folder.clone(), CODE_MAX, &KEY).unwrap();
        let found = (0..=u8::MAX).filter(|n| disk.path(&key(*n)).exists());
        for n in found {
            assert_eq!(disk.get(&key(n), LIMITS), Some((machine_code(n), COST)), "kill {kill}, code {n}");
            whole += 1;
        }
        assert_eq!(named(&folder, "new"), 0, "kill {kill}");
    }
    assert!(whole > 0 && cut > 0, "{whole} files were whole, {cut} writes were cut off");
}

/// Room for three files.
const CODE_MAX: u64 = 1 << 20;

/// Large enough to interrupt a write in the middle.
fn machine_code(n: u8) -> Vec<u8> {
    vec![n; 300_000]
}

fn named(folder: &Path, extension: &str) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|found| found == extension)).count()
}

/// Gives one sign before it opens the folder, and one after each write.
fn write_until_killed(folder: &Path) -> ! {
    give_sign().unwrap();
    let disk = Disk::open(folder.to_owned(), CODE_MAX, &KEY).unwrap();
    for n in (0..=u8::MAX).cycle() {
        disk.put(&key(n), &machine_code(n), COST);
        give_sign().unwrap();
    }
    unreachable!("the numbers go round");
}
