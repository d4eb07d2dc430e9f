//! `skysail dev --build`: runs the author's build command at the start and after each change of a
//! source file. The slot loads the component that the command writes.

use std::{
    collections::BTreeMap,
    env, fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    pin::pin,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::{Instant, interval_at, sleep, timeout},
};

use super::display::Screen;

/// Pause between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// More files are no provider: the command was started in another folder.
const FILES_MAX: usize = 10_000;
/// After so many builds in a row, each with a change during it, the builds become rarer: the
/// command itself may change a file.
const IN_A_ROW_MAX: u32 = 3;
/// The longest pause between two such builds.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Pause between two lines about a build that runs on.
const STILL_RUNS_EVERY: Duration = Duration::from_mins(1);
/// The wait for output after the end of the command: a program that it left behind may hold the
/// pipe.
const OUTPUT_WAIT: Duration = Duration::from_secs(1);
/// The rest of a longer line is not shown.
const LINE_BYTES_MAX: usize = 2_000;
/// Folders with files that builds and `--record` write. Hidden files and folders are left out, too.
const OUTPUTS: [&str; 7] = ["__pycache__", "build", "dist", "node_modules", "out", "recordings", "target"];

/// The files below the current folder, with the time of the last change (nanoseconds) and the size.
type Files = BTreeMap<PathBuf, (i128, u64)>;

/// The build command of an author.
pub(crate) struct Build {
    command: String,
    folder: PathBuf,
    watched: Watched,
}

/// The processes of a build. Dropping this value kills them all.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // An error means that no process is left.
            let _none_left = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Build {
    /// The command runs by `sh -c` in this folder, whose files are looked at now for the first
    /// time.
    ///
    /// # Errors
    /// The folder cannot be read, or has too many files.
    pub(crate) fn new(command: String, folder: PathBuf) -> anyhow::Result<Self> {
        let built = files(&folder)?;
        Ok(Self { command, folder, watched: Watched { built, in_a_row: 0 } })
    }

    /// Runs the command once and shows its output.
    ///
    /// # Errors
    /// The command fails or cannot be started.
    pub(crate) async fn run(&self, screen: Screen) -> anyhow::Result<()> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).current_dir(&self.folder).process_group(0).kill_on_drop(true);
        // The Makefile of `skysail new` calls the program by this variable.
        command.env("SKYSAIL", env::current_exe().context("cannot find the path of the skysail executable")?);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("--build: cannot start sh")?;
        let _group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut shown = pin!(async { tokio::join!(show(screen, stdout), show(screen, stderr)) });
        let (mut is_shown, begun) = (false, Instant::now());
        let mut still_runs = interval_at(begun + STILL_RUNS_EVERY, STILL_RUNS_EVERY);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.context("--build: cannot wait for sh")?,
                _ = &mut shown, if !is_shown => is_shown = true,
                _ = still_runs.tick() => {
                    let seconds = begun.elapsed().as_secs();
                    screen.build(false, &format!("`{}` has run for {seconds} s; Ctrl-C stops it", self.command));
                }
            }
        };
        if !is_shown {
            // A program that the command left behind may write on; nothing waits for it.
            drop(timeout(OUTPUT_WAIT, shown).await);
        }
        if !status.success() {
            bail!("--build: `{}` failed ({status})", self.command);
        }
        Ok(())
    }

    /// Runs the command after each change, without end.
    ///
    /// # Errors
    /// The folder cannot be read, or has too many files.
    pub(crate) async fn follow(mut self, screen: Screen) -> anyhow::Result<()> {
        loop {
            sleep(self.watched.pause()).await;
            let Some(changed) = self.watched.look(files(&self.folder)?) else { continue };
            let shown = changed.strip_prefix(&self.folder).unwrap_or(&changed).display();
            if self.watched.in_a_row == IN_A_ROW_MAX + 1 {
                screen.build(true, &format!(
                    "{shown} changed during each of the last {IN_A_ROW_MAX} builds; builds are rarer now. If the command writes this file, let it write \
                     into a folder with the name build"
                ));
            }
            screen.build(false, &format!("{shown} changed: {}", self.command));
            match self.run(screen).await {
                Ok(()) => screen.build(false, "built"),
                Err(error) => screen.build(true, &format!("{error:#}; the previous release still serves")),
            }
        }
    }
}

/// Shows the lines of a stream until it ends.
async fn show(screen: Screen, stream: Option<impl AsyncRead + Unpin>) {
    let Some(mut stream) = stream else { return };
    let (mut buffer, mut line) = (vec![0; 8 << 10], Vec::new());
    // An error is the end.
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        for &byte in buffer.iter().take(length) {
            if byte == b'\n' {
                screen.build(false, &String::from_utf8_lossy(&line));
                line.clear();
            } else if line.len() < LINE_BYTES_MAX {
                line.push(byte);
            }
        }
    }
    if !line.is_empty() {
        screen.build(false, &String::from_utf8_lossy(&line));
    }
}

/// The files below a folder, without outputs.
fn files(root: &Path) -> anyhow::Result<Files> {
    let (mut files, mut folders) = (Files::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // Somebody may remove or lock a folder between two looks.
            Err(error)
                if folder != root && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
            {
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("--build: cannot read {}", folder.display())),
        };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            // An editor may remove the file meanwhile; a symbolic link is not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            if name.starts_with('.') || name.ends_with(".wasm") || name.ends_with(".symbols") {
                continue;
            }
            if !metadata.is_dir() {
                let changed = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
                files.insert(path, (changed, metadata.len()));
            } else if !OUTPUTS.contains(&name.as_str()) {
                folders.push(path);
            }
        }
        if files.len() > FILES_MAX {
            let root = root.display();
            bail!("--build: {root} has more than {FILES_MAX} files; start the command in the folder of the provider");
        }
    }
    Ok(files)
}

/// The files as they were before the last build: a change during a build causes another one.
struct Watched {
    built: Files,
    in_a_row: u32,
}

impl Watched {
    /// The pause before the next look.
    fn pause(&self) -> Duration {
        match self.in_a_row.checked_sub(IN_A_ROW_MAX) {
            None => LOOK_EVERY,
            Some(more) => Duration::from_secs(1).saturating_mul(1 << more.min(6)).min(PAUSE_MAX),
        }
    }

    /// A file that changed since the last build began.
    fn look(&mut self, now: Files) -> Option<PathBuf> {
        let changed = changed(&self.built, &now).map(Path::to_owned);
        self.built = now;
        self.in_a_row = if changed.is_some() { self.in_a_row.saturating_add(1) } else { 0 };
        changed
    }
}

/// A file that was added, changed or deleted between the two looks.
fn changed<'a>(before: &'a Files, now: &'a Files) -> Option<&'a Path> {
    let new = now.iter().find(|(path, state)| before.get(*path) != Some(state));
    let gone = || before.iter().find(|(path, _)| !now.contains_key(*path));
    new.or_else(gone).map(|(path, _)| path.as_path())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, time::Duration};

    use tokio::time::{sleep, timeout};

    use super::{Build, Files, LOOK_EVERY, Watched, changed, files};
    use crate::commands::dev::display::Screen;

    #[test]
    fn sources_are_watched_and_outputs_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("src/main.go", "one");
        let before = files(folder.path()).unwrap();
        for output in [
            "target/x",
            "recordings/1.json",
            "src/build/x",
            "node_modules/a/b.js",
            "__pycache__/a.pyc",
            ".git/index",
            "my.wasm",
            "my.symbols",
        ] {
            write(output, "text");
        }
        assert_eq!(changed(&before, &files(folder.path()).unwrap()), None);
        write("src/main.go", "three");
        let now = files(folder.path()).unwrap();
        assert!(changed(&before, &now).unwrap().ends_with("src/main.go"));
        fs::remove_file(folder.path().join("src/main.go")).unwrap();
        let gone = files(folder.path()).unwrap();
        assert!(changed(&now, &gone).unwrap().ends_with("src/main.go"));
    }

    async fn until(condition: impl Fn() -> bool) {
        while !condition() {
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let build = |command: &str| Build::new(command.to_owned(), folder.path().to_owned()).unwrap();
        build("test -x \"$SKYSAIL\"").run(Screen::new()).await.unwrap();
        let error = build("exit 3").run(Screen::new()).await.unwrap_err().to_string();
        assert_eq!(error, "--build: `exit 3` failed (exit status: 3)");
    }

    #[tokio::test]
    async fn a_build_that_is_dropped_leaves_no_process_behind() {
        let folder = tempfile::tempdir().unwrap();
        let command = "sleep 600 & echo $! > pid.new && mv pid.new pid; wait".to_owned();
        let build = Build::new(command, folder.path().to_owned()).unwrap();
        let pid = folder.path().join("pid");
        tokio::select! {
            result = build.run(Screen::new()) => panic!("the build has ended: {result:?}"),
            () = until(|| pid.exists()) => {}
        }
        let process = PathBuf::from("/proc").join(fs::read_to_string(pid).unwrap().trim()).join("stat");
        // A process that was killed stays as a zombie until its parent takes notice.
        until(|| fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "))).await;
    }

    #[tokio::test]
    async fn a_program_that_a_build_leaves_behind_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let build = Build::new("sleep 600 &".to_owned(), folder.path().to_owned()).unwrap();
        timeout(Duration::from_mins(5), build.run(Screen::new())).await.unwrap().unwrap();
    }

    #[test]
    fn builds_that_change_a_watched_file_become_rare_and_no_change_is_lost() {
        let files = |state: u64| Files::from([("generated".into(), (0, state))]);
        let mut watched = Watched { built: files(0), in_a_row: 0 };
        let pauses: Vec<_> = (1..=12)
            .map(|state| {
                assert!(watched.look(files(state)).is_some());
                watched.pause().as_millis()
            })
            .collect();
        assert_eq!(pauses, [500, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000]);
        assert!(watched.look(files(12)).is_none());
        assert_eq!(watched.pause(), LOOK_EVERY);
    }
}
