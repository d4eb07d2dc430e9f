//! Measures the time from the offer of a release until it serves, for each source, while calls run.
//! `make bench` runs everything; `--help` explains how to run a part.

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
    swaps::{Figures, REFERENCE, Restart, RunOptions, Source, insert, markdown, reference_main, restart, swaps},
    target_folder,
};
use skysail_test_support::apiserver::ApiServer;

/// Measures swaps: the time from the offer of a release until it serves, while calls run. A
/// thousand swaps of each source, each source in a separate process, take most of an hour; the
/// registry takes the most, because its tag is polled once a second.
///
/// A quick look: --swaps 20 --source file --source memory
#[derive(Debug, Parser)]
struct Options {
    /// Number of swaps for each source.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    swaps: u32,
    /// Sources to measure; all if none is named.
    #[arg(long, value_enum)]
    source: Vec<Source>,
    /// Parts to measure; both if none is named.
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Name of the component in the folder `components`; it has to be a provider for the simulated
    /// cloud. Each release is this component with another digest. The default has the size that the
    /// bounds assume. With several components the releases alternate; the restart uses the first.
    #[arg(long, default_value = "simcloud-basic")]
    component: Vec<String>,
    /// Calls per second during the swaps.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    calls_per_second: u32,
    /// Latency of the cloud for each request, in milliseconds.
    #[arg(long, default_value_t = 20)]
    latency_ms: u64,
    /// Write machine code to disk, too, before a release serves, as `skysail run --state-dir` does.
    #[arg(long)]
    keep: bool,
    /// Number of restarts of a killed manager.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    restarts: u32,
    /// Exit with status 1 if a call failed, memory grew, or a bound was exceeded.
    #[arg(long)]
    check: bool,
    /// Where swaps.json and swaps.md go; by default `bench` in Cargo's target folder.
    #[arg(long)]
    out: Option<PathBuf>,
    /// A document into which the tables are inserted, between its lines `<!-- swaps: begin -->` and
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
    // The same allocator setting as the manager, because this process measures the manager's
    // memory.
    allocator::hold_little_free_memory();
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
                swaps(*one, &options.run_options()?, say).await?
            } else {
                by_itself(options, *source, out)?
            });
            // Write after each source, so that an interrupted benchmark keeps its figures.
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

/// Runs in a separate process, so that memory of one source does not count for the next.
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
    fn run_options(&self) -> Result<RunOptions> {
        Ok(RunOptions {
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
