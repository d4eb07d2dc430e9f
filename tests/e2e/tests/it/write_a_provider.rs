//! The page `deploy/docs/write-a-provider.md`, followed word for word in each language. The comment
//! before a block of the page says what the block is: `LANGUAGE`, `LANGUAGE: FILE`, `file: FILE`,
//! or `terminal` for a command that goes on.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use skysail_test_e2e::{
    wait::eventually,
    workspace::{Process, command, printed_kubeconfig, run, skysail, target},
};
use tempfile::TempDir;

use crate::documents::{Block, blocks, page};

const PAGE: &str = "deploy/docs/write-a-provider.md";
/// The port of the page's cloud; the test's cloud has a free one.
const PORT: &str = "8700";
const LANGUAGES: [&str; 4] = ["rust", "go", "javascript", "python"];

/// An author with several terminals.
struct Author {
    language: &'static str,
    folder: TempDir,
    /// Where the author's shell is.
    place: PathBuf,
    port: u16,
    terminals: Vec<Process>,
}

impl Author {
    fn new(language: &'static str) -> Result<Self> {
        // Inside the repository, as the page says.
        let folder = TempDir::new_in(fs::canonicalize(target())?)?;
        let bin = folder.path().join("bin");
        fs::create_dir(&bin)?;
        // A copy, because the page promises that the program needs no components beside it.
        fs::copy(skysail()?, bin.join("skysail"))?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        Ok(Self { language, place: folder.path().to_owned(), folder, port, terminals: Vec::new() })
    }

    async fn follow(&mut self) -> Result<()> {
        self.follow_through("").await
    }

    /// Follows the page to its end, or through the first block that is for all languages and has
    /// this text.
    async fn follow_through(&mut self, last: &str) -> Result<()> {
        for block in blocks(&page(PAGE)?) {
            let is_last = !last.is_empty() && self.is_for_all(&block) && block.text.contains(last);
            let text = block.text.replace(PORT, &self.port.to_string());
            let done = match self.file(&block) {
                Some(file) => fs::write(self.place.join(file), text).map_err(Into::into),
                None if block.mark == "terminal" => self.open_terminal(&text).await,
                None if self.is_for_all(&block) || block.mark == self.language => self.run(&text).await,
                None => continue,
            };
            done.with_context(|| format!("{}: {}", block.mark, block.text))?;
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The file of a block, if the author needs this file.
    fn file<'a>(&self, block: &'a Block) -> Option<&'a str> {
        let (whose, file) = block.mark.split_once(": ")?;
        (whose == "file" || whose == self.language).then_some(file)
    }

    fn is_for_all(&self, block: &Block) -> bool {
        block.mark.is_empty() && block.is_shell()
    }

    /// The commands, with what the author's terminals have.
    fn script(&self, commands: &str) -> Result<String> {
        let folder = self.folder.path().display();
        // Debian's Rust builds the standard library from source: the repository's guests have done
        // so.
        let guests = fs::canonicalize(target())?.join("guests");
        let variables = format!("PATH={folder}/bin:$PATH TMPDIR={folder} CARGO_TARGET_DIR={}", guests.display());
        Ok(format!("set -euo pipefail\ncd {}\nexport {variables}\n{commands}", self.place.display()))
    }

    /// Runs commands to their end. The author's shell stays in the folder to which they change.
    async fn run(&mut self, commands: &str) -> Result<()> {
        let there = self.folder.path().join("place");
        let commands = format!("{}{commands}\npwd > {}", self.exports().await?, there.display());
        run("bash", &["-c", &self.script(&commands)?])?;
        self.place = fs::read_to_string(there)?.trim_end().into();
        Ok(())
    }

    /// Begins a command that goes on, and waits until the small cloud answers.
    async fn open_terminal(&mut self, begun: &str) -> Result<()> {
        let output = File::create(self.output(self.terminals.len()))?;
        let errors = output.try_clone()?;
        let mut shell = command("bash");
        shell.args(["-c", &self.script(&format!("exec {begun}"))?]);
        self.terminals.push(Process(shell.stdin(Stdio::null()).stdout(output).stderr(errors).spawn()?));
        let connected = || async { TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).map(drop) };
        eventually("the small cloud listens", 60, connected).await
    }

    fn output(&self, terminal: usize) -> PathBuf {
        self.folder.path().join(format!("terminal-{terminal}"))
    }

    /// The line that `skysail dev` prints for other terminals, once it runs in the last terminal.
    async fn exports(&self) -> Result<String> {
        if self.terminals.len() < 2 {
            return Ok(String::new());
        }
        let output = self.output(self.terminals.len() - 1);
        let printed = eventually("the kubeconfig is printed", 120, || async { printed_kubeconfig(&output) }).await?;
        Ok(format!("export KUBECONFIG={printed}\n"))
    }
}

#[test]
fn each_block_of_the_page_has_a_known_mark() -> Result<()> {
    for Block { mark, text, .. } in blocks(&page(PAGE)?) {
        let whose = mark.split_once(": ").map_or(mark.as_str(), |(whose, _)| whose);
        let known = ["", "file", "terminal"].contains(&whose) || LANGUAGES.contains(&whose);
        ensure!(known, "a comment {mark:?} before the block {text}");
    }
    Ok(())
}

#[tokio::test]
async fn an_author_in_rust_gets_a_provider_of_a_small_cloud() -> Result<()> {
    Author::new("rust")?.follow().await
}

#[tokio::test]
async fn an_author_in_go_gets_a_provider_of_a_small_cloud() -> Result<()> {
    Author::new("go")?.follow().await
}

#[tokio::test]
async fn an_author_in_javascript_gets_a_provider_of_a_small_cloud() -> Result<()> {
    Author::new("javascript")?.follow().await
}

#[tokio::test]
async fn an_author_in_python_gets_a_provider_of_a_small_cloud() -> Result<()> {
    // Each command behind the first call would compile Python for 20 s of CPU, and is the same in
    // each language.
    Author::new("python")?.follow_through("skysail call").await
}
