//! The input of the rules: tracked files with their text, and the crates' dependencies as `cargo
//! tree` resolves them.
//!
//! A fixture is a hand-made tree with marks on the lines that a rule has to find.

use std::{cell::OnceCell, collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::{modules, source::Source};

/// The name of the virtual file that holds `package: dependency features` lines, one for each crate
/// of ours and each package in its tree.
pub(crate) const CARGO_TREE: &str = "@cargo-tree";

/// The folder of the fixtures, which are not part of the repository for the rules.
const FIXTURES: &str = "tests/tidy/fixtures/";

/// One file of the repository.
pub(crate) struct File {
    /// From the root of the repository, with forward slashes.
    pub(crate) path: String,
    /// The text; empty where the file is not UTF-8.
    pub(crate) text: String,
    /// Bytes.
    pub(crate) size: u64,
    /// The parsed source of a Rust file.
    pub(crate) source: Option<Source>,
}

impl File {
    fn new(path: String, bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        let text = String::from_utf8(bytes).unwrap_or_default();
        let source = path.ends_with(".rs").then(|| Source::read(&text));
        Self { path, text, size, source }
    }

    /// Lines with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// All files.
pub(crate) struct Tree {
    /// Sorted by path.
    pub(crate) files: Vec<File>,
    reached: OnceCell<BTreeMap<String, bool>>,
}

impl Tree {
    /// Reads this repository: what git tracks or would track. Without git (an unpacked archive)
    /// everything but build output.
    pub(crate) fn of_this_repository() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for path in paths(&root)? {
            let full = root.join(&path);
            if path.starts_with(FIXTURES) || !full.is_file() {
                continue;
            }
            let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            files.push(File::new(path, bytes));
        }
        files.push(File::new(CARGO_TREE.to_owned(), cargo_trees(&root, &files)?.into_bytes()));
        Ok(Self::sorted(files))
    }

    /// Reads a fixture: `//- path` begins a file, ` ~!` at the end of a line (also of the `//-`
    /// line: the file as a whole, line 0) says that this is a finding; `//- path (N bytes)` claims
    /// a size. Returns the tree and the expected places.
    pub(crate) fn of_fixture(rule: &str) -> Result<(Self, Vec<(String, usize)>)> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(format!("{rule}.txt"));
        let text = fs::read_to_string(&path).with_context(|| format!("rule {rule} has no {}", path.display()))?;
        let (mut files, mut expected) = (Vec::<(String, String)>::new(), Vec::new());
        let mut number = 0;
        for line in text.lines() {
            let (line, marked) = line.strip_suffix(" ~!").map_or((line, false), |line| (line, true));
            if let Some(path) = line.strip_prefix("//- ") {
                files.push((path.to_owned(), String::new()));
                number = 0;
            } else {
                let (_, content) = files.last_mut().context("a fixture begins with '//- path'")?;
                content.push_str(line);
                content.push('\n');
                number += 1;
            }
            if let (true, Some((path, _))) = (marked, files.last()) {
                expected.push((path.split(" (").next().unwrap_or(path).to_owned(), number));
            }
        }
        let files = files.into_iter().map(|(path, text)| match path.split_once(" (") {
            Some((path, claim)) => {
                let size = claim.split(' ').next().unwrap_or_default().parse().unwrap_or_default();
                File { size, ..File::new(path.to_owned(), text.into_bytes()) }
            }
            None => File::new(path, text.into_bytes()),
        });
        let files = files.collect();
        Ok((Self::sorted(files), expected))
    }

    fn sorted(mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { files, reached: OnceCell::new() }
    }

    /// Rust files that a crate root reaches; the value says whether only tests see them.
    pub(crate) fn reached(&self) -> &BTreeMap<String, bool> {
        self.reached.get_or_init(|| modules::reached(self))
    }

    /// One file by its path.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().and_then(|index| self.files.get(index))
    }

    /// Rust files with their parsed source.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files.iter().filter_map(|file| Some((file, file.source.as_ref()?)))
    }

    /// The manifests of our crates, without that of the root.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"))
    }
}

fn paths(root: &Path) -> Result<Vec<String>> {
    if root.join(".git").exists() {
        let output = Command::new("git")
            .current_dir(root)
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("cannot run git ls-files")?;
        ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
        let list = String::from_utf8(output.stdout).context("a tracked path is not UTF-8")?;
        return Ok(list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect());
    }
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    Ok(found)
}

fn walk(root: &Path, folder: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot list {folder:?}"))? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| anyhow::anyhow!("{name:?} is not UTF-8"))?;
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() {
            if path != "target" {
                walk(root, &path, found)?;
            }
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// `cargo tree` for each crate under `runtime/` and for the SDK. Each crate is resolved alone, so
/// that features which only another crate enables do not count. Dependencies of tests are left out.
fn cargo_trees(root: &Path, files: &[File]) -> Result<String> {
    let mut text = String::new();
    for file in files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        if !file.path.starts_with("runtime/") && !file.path.starts_with("guest-sdk/") {
            continue;
        }
        let package = package_name(&file.text).with_context(|| format!("{} names no package", file.path))?;
        let output = Command::new(env!("CARGO"))
            .current_dir(root)
            .args([
                "tree",
                "--locked",
                "--edges",
                "normal,build",
                "--prefix",
                "none",
                "--no-dedupe",
                "--format",
                "{p} {f}",
            ])
            .args(["--package", package])
            .output()
            .context("cannot run cargo tree")?;
        ensure!(output.status.success(), "cargo tree -p {package}: {}", String::from_utf8_lossy(&output.stderr));
        let mut lines: Vec<_> =
            String::from_utf8(output.stdout)?.lines().map(|line| tree_line(package, line)).collect();
        lines.sort_unstable();
        lines.dedup();
        text.push_str(&lines.join("\n"));
        text.push('\n');
    }
    Ok(text)
}

/// `tokio v1.2.3 (*) net,rt` becomes `package: tokio net,rt`.
fn tree_line(package: &str, line: &str) -> String {
    let name = line.split(' ').next().unwrap_or_default();
    let features = line.rsplit(' ').next().filter(|last| !last.starts_with(['(', 'v'])).unwrap_or_default();
    format!("{package}: {name} {features}").trim_end().to_owned()
}

/// The `name` of a manifest's `[package]`.
pub(crate) fn package_name(manifest: &str) -> Option<&str> {
    let package = manifest.split("[package]").nth(1)?;
    let line = package.lines().find(|line| line.starts_with("name = "))?;
    line.split('"').nth(1)
}
