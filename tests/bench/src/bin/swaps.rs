//! How long a release takes from its offer to serving, by source, under calls: `make bench` runs it
//! whole; `--help` says how to run a part.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};
use skysail_host::allocator;
use skysail_test_bench::{
    swaps::{Figures, REFERENCE, Restart, Source, Task, insert, markdown, reference_main, restart, swaps},
    target_folder,
};
use skysail_test_support::apiserver::ApiServer;

/// Measures swaps: a release is offered, and the time runs until it serves, while calls go on. Each
/// source in a process of its own, a thousand swaps each, takes most of an hour; most of that is
/// the registry's, whose tag is looked at once a second.
///
/// A quick look: --swaps 20 --source file --source memory
#[derive(Debug, Parser)]
struct Options {
    /// Releases one after another, from each source.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    swaps: u32,
    /// Where they come from; every source if none is named.
    #[arg(long, value_enum)]
    source: Vec<Source>,
    /// What is measured; both if nothing is named.
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// The component that is exchanged for itself, by its name in the folder `components`; one that
    /// serves the simulated cloud. The default is as large as the bounds have it. Of several each
    /// is followed by the next: what two of them have in common is not compiled again, so builds of
    /// which nothing is the same show the most that a swap takes. The restart has the first.
    #[arg(long, default_value = "simcloud-basic")]
    component: Vec<String>,
    /// Calls throughout.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    calls_per_second: u32,
    /// Milliseconds that the cloud takes for each request.
    #[arg(long, default_value_t = 20)]
    latency_ms: u64,
    /// Write machine code to disk, too, before a release serves: as `skysail run --state-dir` does.
    #[arg(long)]
    keep: bool,
    /// Times that a manager is killed and started again.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    restarts: u32,
    /// End with 1 where a call failed, memory grew, or a bound does not hold.
    #[arg(long)]
    check: bool,
    /// Where swaps.json and swaps.md go; by default `bench` in Cargo's target folder.
    #[arg(long)]
    out: Option<PathBuf>,
    /// A document that takes up the tables, between its lines `<!-- swaps: begin -->` and
    /// `<!-- swaps: end -->`.
    #[arg(long)]
    document: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Swaps,
    Restart,
}

/// All that was measured.
#[derive(Default, Serialize, Deserialize)]
struct Record {
    swaps: Vec<Figures>,
    restart: Option<Restart>,
}

fn main() -> Result<ExitCode> {
    if std::env::args().nth(1).as_deref() == Some(REFERENCE) {
        return reference_main().map(|()| ExitCode::SUCCESS);
    }
    // As the manager does, whose memory this process has to show.
    allocator::give_back_large_buffers();
    let options = Options::parse();
    let out = match &options.out {
        Some(out) => out.clone(),
        None => target_folder()?.join("bench"),
    };
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let runtime = tokio::runtime::Runtime::new().context("starting tokio")?;
    let record = runtime.block_on(measure(&options, &out))?;
    print(&markdown(&record.swaps, record.restart.as_ref()));
    let failed = record.swaps.iter().any(|figures| figures.failures() > 0);
    let holds = record.swaps.iter().all(|figures| figures.holds() && figures.is_flat() != Some(false))
        && record.restart.as_ref().is_none_or(Restart::holds);
    Ok(if options.check && (failed || !holds) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure(options: &Options, out: &Path) -> Result<Record> {
    ApiServer::prepare()?;
    let has = |part: Part| options.part.is_empty() || options.part.contains(&part);
    let mut record = Record::default();
    if has(Part::Swaps) {
        let sources = if options.source.is_empty() { Source::ALL.to_vec() } else { options.source.clone() };
        for source in &sources {
            record.swaps.push(if let [one] = sources.as_slice() {
                swaps(*one, &options.task()?, say).await?
            } else {
                by_itself(options, *source, out)?
            });
            // After each: an interrupted bench has what it measured.
            options.save(out, &record)?;
        }
    }
    if has(Part::Restart) {
        let component = options.component.first().context("no component")?;
        record.restart = Some(restart(component, options.restarts, say).await?);
        options.save(out, &record)?;
    }
    Ok(record)
}

/// In a process of its own: memory that one source has taken is not the next one's.
fn by_itself(options: &Options, source: Source, out: &Path) -> Result<Figures> {
    use clap::ValueEnum as _;
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let name = source.to_possible_value().context("every source has a name")?.get_name().to_owned();
    let out = out.join("swaps").join(&name);
    let mut command = Command::new(&program);
    command
        .args(["--part=swaps", &format!("--source={name}")])
        .arg(format!("--swaps={}", options.swaps))
        .args(options.component.iter().map(|component| format!("--component={component}")))
        .arg(format!("--calls-per-second={}", options.calls_per_second))
        .arg(format!("--latency-ms={}", options.latency_ms))
        .arg(format!("--out={}", out.display()))
        .args(options.keep.then_some("--keep"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = command.status().with_context(|| format!("starting {}", program.display()))?;
    ensure!(status.success(), "{source}: ended with {status}");
    let file = out.join("swaps.json");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let record: Record = serde_json::from_str(&text).with_context(|| format!("in {}", file.display()))?;
    record.swaps.into_iter().next().with_context(|| format!("{} has no figures", file.display()))
}

impl Options {
    fn task(&self) -> Result<Task> {
        Ok(Task {
            components: self.component.clone(),
            swaps: self.swaps,
            calls_per_second: self.calls_per_second,
            latency: Duration::from_millis(self.latency_ms),
            keep: self.keep,
            reference: std::env::current_exe().context("this program does not know where it is")?,
        })
    }

    fn save(&self, out: &Path, record: &Record) -> Result<()> {
        let tables = markdown(&record.swaps, record.restart.as_ref());
        write(&out.join("swaps.md"), &tables)?;
        write(&out.join("swaps.json"), &serde_json::to_string_pretty(record)?)?;
        let Some(document) = &self.document else { return Ok(()) };
        let text = fs::read_to_string(document).with_context(|| format!("reading {}", document.display()))?;
        write(document, &insert(&text, &tables).with_context(|| document.display().to_string())?)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[expect(clippy::print_stdout, reason = "the tables are what this program is for")]
fn print(tables: &str) {
    print!("{tables}");
}

#[expect(clippy::print_stderr, reason = "a benchmark of an hour says how far it is")]
fn say(line: &str) {
    eprintln!("{line}");
}
