//! `simulate`: runs simulated days, each in its own process, and prints the story of each failed
//! day.

use std::{
    io::{self, Write as _},
    num::NonZero,
    panic::{self, AssertUnwindSafe},
    process::{ExitCode, Stdio},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use skysail_test_simulation::{Outcome, Plan, Story, entropy, run};
use tokio::{
    process::Command,
    runtime,
    task::JoinSet,
    time::{Instant, interval, timeout},
};

/// The time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// A day takes a second. A day that takes this much CPU time loops without progress of its clock.
const CPU_TIME_MAX: Duration = Duration::from_mins(5);
/// The same in real time, for a day that waits for nothing: a busy machine gives a day a tenth of a
/// core.
const REAL_TIME_MAX: Duration = Duration::from_mins(50);
/// Pause between two looks at both.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longer than [`REAL_TIME_MAX`], after which the process itself ends the day and prints its story.
const PROCESS_MAX: Duration = Duration::from_hours(1);
/// The last lines of the story of an endless day that are printed.
const LINES_MAX: usize = 500;

/// Simulate days with faults in a cluster, its clouds and its managers.
///
/// Each seed is one day: the seed decides what people do, which requests fail and how, which
/// processes die, and when. The story of a failed day is printed. The same seed always produces the
/// same story, to the last line.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  simulate --seeds 500\n  simulate --seeds 10000 --seed-from 500\n  simulate --one 4711 --story"
)]
struct Args {
    /// Number of days.
    #[arg(long, default_value_t = 500, env = "SEEDS")]
    seeds: u64,
    /// Seed of the first day.
    #[arg(long, default_value_t = 0, env = "SEED_FROM")]
    seed_from: u64,
    /// Days in parallel; 0 means one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Continue after a failed day, to the last seed.
    #[arg(long)]
    keep_going: bool,
    /// Run only the day of this seed, in this process.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "seed_from", "jobs", "keep_going"])]
    one: Option<u64>,
    /// Print the story also if the day ends well.
    #[arg(long, requires = "one")]
    story: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.one {
        Some(seed) => one(seed, args.story),
        None => runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| runtime.block_on(many(&args))),
    };
    done.unwrap_or_else(|error| {
        say(&format!("simulate: {error}"));
        ExitCode::from(2)
    })
}

fn one(seed: u64, story: bool) -> io::Result<ExitCode> {
    entropy::fix(seed);
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let told = Arc::new(OnceLock::new());
    let watched = Arc::clone(&told);
    thread::spawn(move || end_in_time(&watched));
    // The story before a panic is more useful than the stack trace.
    let lived = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(Plan::of(seed), &told))));
    let outcome = lived.unwrap_or_else(|_| Outcome {
        failures: vec!["VIOLATION a panic: see standard error".to_owned()],
        story: told.get().map(Story::lines).unwrap_or_default(),
    });
    let bad = !outcome.failures.is_empty();
    let story = if story || bad { outcome.story } else { Vec::new() };
    let mut out = io::stdout().lock();
    for line in story.iter().chain(&outcome.failures) {
        writeln!(out, "{line}")?;
    }
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the end of the story and ends this process when the day takes too long.
fn end_in_time(told: &OnceLock<Story>) {
    let (began, mut used) = (Instant::now(), Duration::ZERO);
    while used < CPU_TIME_MAX && began.elapsed() < REAL_TIME_MAX {
        thread::park_timeout(LOOK_EVERY);
        used = cpu_time();
    }
    let lines = told.get().map(Story::lines).unwrap_or_default();
    let mut out = io::stdout().lock();
    for line in lines.iter().skip(lines.len().saturating_sub(LINES_MAX)) {
        // The reader may be gone.
        drop(writeln!(out, "{line}"));
    }
    drop(writeln!(out, "WRONG the day had not ended after {} s of CPU time", used.as_secs()));
    drop(out.flush());
    std::process::exit(1);
}

/// The CPU time of this process, in whole seconds.
fn cpu_time() -> Duration {
    Duration::from_secs(clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs())
}

/// The seed, and the story if the day failed.
type Ended = io::Result<(u64, Option<String>)>;

async fn many(args: &Args) -> io::Result<ExitCode> {
    let jobs = if args.jobs == 0 { thread::available_parallelism().map_or(1, NonZero::get) } else { args.jobs };
    let (began, mut progress) = (Instant::now(), interval(PROGRESS));
    say(&format!("simulating {} days from seed {}, {jobs} at once", args.seeds, args.seed_from));
    let mut seeds = (0..args.seeds).map(|index| args.seed_from.wrapping_add(index));
    let (mut running, mut lived, mut bad): (JoinSet<Ended>, u64, Vec<u64>) = (JoinSet::new(), 0, Vec::new());
    for seed in seeds.by_ref().take(jobs) {
        running.spawn(live_through(seed));
    }
    progress.tick().await;
    loop {
        let ended = tokio::select! {
            ended = running.join_next() => ended,
            _ = progress.tick() => {
                say(&format!("{lived} of {} days after {} s", args.seeds, began.elapsed().as_secs()));
                continue;
            }
        };
        let Some(ended) = ended else { break };
        let (seed, story) = ended.map_err(io::Error::other)??;
        lived += 1;
        if let Some(story) = story {
            say(&format!("{story}\nseed {seed} ended badly; repeat it: make simulate SEED={seed}"));
            bad.push(seed);
        }
        if (bad.is_empty() || args.keep_going)
            && let Some(seed) = seeds.next()
        {
            running.spawn(live_through(seed));
        }
    }
    if bad.is_empty() {
        say(&format!("{lived} days ended well in {} s", began.elapsed().as_secs()));
        return Ok(ExitCode::SUCCESS);
    }
    bad.sort_unstable();
    say(&format!("{} of {lived} days ended badly: {bad:?}", bad.len()));
    Ok(ExitCode::FAILURE)
}

/// Runs the day of this seed in a process of its own.
async fn live_through(seed: u64) -> Ended {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--one").arg(seed.to_string()).env_remove("SEEDS").env_remove("SEED_FROM");
    let output = timeout(PROCESS_MAX, command.stdin(Stdio::null()).kill_on_drop(true).output());
    let Ok(output) = output.await else {
        return Ok((
            seed,
            Some(format!("WRONG the day had not ended after {} s, and its process neither", PROCESS_MAX.as_secs())),
        ));
    };
    let output = output?;
    if output.status.success() {
        return Ok((seed, None));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((seed, Some(format!("{}{}{}", text(&output.stdout), text(&output.stderr), output.status))))
}

fn say(line: &str) {
    // The reader may be gone.
    drop(writeln!(io::stderr(), "{line}"));
}
