//! `skysail dev --build`: runs the author's build command at the start and after each change of a
//! source file. The slot loads the component that the command writes.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{process::Command, time::sleep};

use super::display::Screen;
use crate::output;

/// Pause between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// More files are no provider: the command was started in another folder.
const FILES_MAX: usize = 10_000;
/// Builds in a row without a look at which nothing changed.
const IN_A_ROW_MAX: u32 = 3;
/// Folders with files that builds write. Hidden folders are left out, too.
const OUTPUTS: [&str; 5] = ["build", "dist", "node_modules", "out", "target"];

/// The files below the current folder, with the time of the last change (nanoseconds) and the size.
type Files = BTreeMap<PathBuf, (i128, u64)>;

/// The build command of an author.
pub(crate) struct Build {
    command: String,
    folder: PathBuf,
}

impl Build {
    /// The command runs by `sh -c` in this folder.
    pub(crate) const fn new(command: String, folder: PathBuf) -> Self {
        Self { command, folder }
    }

    /// Runs the command once. Its output goes to the terminal.
    ///
    /// # Errors
    /// The command fails or cannot be started.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).current_dir(&self.folder).stdin(Stdio::null()).kill_on_drop(true);
        let status = command.status().await.context("--build: cannot start sh")?;
        if !status.success() {
            bail!("--build: `{}` failed ({status})", self.command);
        }
        Ok(())
    }

    /// Runs the command after each change, without end.
    ///
    /// # Errors
    /// The folder cannot be read, or has too many files.
    pub(crate) async fn follow(&self, screen: Screen) -> anyhow::Result<()> {
        let mut watched = Watched { built: self.files()?, in_a_row: 0 };
        loop {
            sleep(LOOK_EVERY).await;
            let (look, changed) = watched.look(self.files()?);
            let shown = changed.strip_prefix(&self.folder).unwrap_or(&changed).to_string_lossy();
            let shown = output::plain(&shown);
            match look {
                Look::Nothing => {}
                Look::Build => {
                    screen.say(&format!("{shown} changed: {}", self.command));
                    match self.run().await {
                        Ok(()) => screen.say("built"),
                        Err(error) => screen.say(&format!("{error:#}; the release before serves on")),
                    }
                }
                Look::Pause => screen.say(&format!(
                    "--build: each build changes {shown}; let the command write into a folder that is called build. The next change causes the next build"
                )),
            }
        }
    }

    fn files(&self) -> anyhow::Result<Files> {
        let (mut files, mut folders) = (Files::new(), vec![self.folder.clone()]);
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(&folder).with_context(|| format!("--build: cannot read {}", folder.display()))?;
            for entry in entries.flatten() {
                let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
                // An editor may remove the file meanwhile; a symbolic link is not followed.
                let Ok(metadata) = entry.metadata() else { continue };
                if name.starts_with('.') || OUTPUTS.contains(&name.as_str()) || name.ends_with(".wasm") {
                    continue;
                }
                if metadata.is_dir() {
                    folders.push(path);
                } else {
                    let changed = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
                    files.insert(path, (changed, metadata.len()));
                }
            }
            if files.len() > FILES_MAX {
                let folder = self.folder.display();
                bail!(
                    "--build: {folder} has more than {FILES_MAX} files; start the command in the folder of the provider"
                );
            }
        }
        Ok(files)
    }
}

/// The files as they were before the last build: a change during a build causes another one.
struct Watched {
    built: Files,
    in_a_row: u32,
}

/// What a look at the files leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Nothing,
    Build,
    /// The builds themselves change a file.
    Pause,
}

impl Watched {
    /// What to do, and a file that changed.
    fn look(&mut self, now: Files) -> (Look, PathBuf) {
        let Some(changed) = changed(&self.built, &now).map(Path::to_owned) else {
            self.in_a_row = 0;
            return (Look::Nothing, PathBuf::new());
        };
        self.built = now;
        self.in_a_row = (self.in_a_row + 1) % (IN_A_ROW_MAX + 1);
        (if self.in_a_row == 0 { Look::Pause } else { Look::Build }, changed)
    }
}

/// A file that is not as it was.
fn changed<'a>(before: &'a Files, now: &'a Files) -> Option<&'a Path> {
    let new = now.iter().find(|(path, state)| before.get(*path) != Some(state));
    let gone = || before.iter().find(|(path, _)| !now.contains_key(*path));
    new.or_else(gone).map(|(path, _)| path.as_path())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{Build, Files, Look, Watched, changed};

    #[test]
    fn sources_are_watched_and_outputs_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let build = Build::new("true".to_owned(), folder.path().to_owned());
        write("src/main.go", "one");
        let before = build.files().unwrap();
        for output in ["target/x", "src/build/x", "node_modules/a/b.js", ".git/index", "my.wasm"] {
            write(output, "text");
        }
        assert_eq!(changed(&before, &build.files().unwrap()), None);
        write("src/main.go", "three");
        let now = build.files().unwrap();
        assert!(changed(&before, &now).unwrap().ends_with("src/main.go"));
        fs::remove_file(folder.path().join("src/main.go")).unwrap();
        let gone = build.files().unwrap();
        assert!(changed(&now, &gone).unwrap().ends_with("src/main.go"));
    }

    #[tokio::test]
    async fn a_command_that_fails_is_named() {
        let build = |command: &str| Build::new(command.to_owned(), Path::new("/").to_owned());
        build("true").run().await.unwrap();
        let error = build("exit 3").run().await.unwrap_err().to_string();
        assert_eq!(error, "--build: `exit 3` failed (exit status: 3)");
    }

    #[test]
    fn builds_that_change_a_watched_file_end() {
        let files = |state: u64| Files::from([("generated".into(), (0, state))]);
        let mut watched = Watched { built: files(0), in_a_row: 0 };
        let looks = [1, 2, 3, 4, 4, 5, 5, 6].map(|state| watched.look(files(state)).0);
        let (build, pause, nothing) = (Look::Build, Look::Pause, Look::Nothing);
        assert_eq!(looks, [build, build, build, pause, nothing, build, nothing, build]);
    }
}
