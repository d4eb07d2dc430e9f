//! `simulate`: lives through bad days, each in a process of its own, and tells the story of those
//! that end badly.

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
use skysail_test_simulation::{Outcome, Plan, Story, entropy, run};
use tokio::{
    process::Command,
    runtime,
    task::JoinSet,
    time::{Instant, interval, timeout},
};

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// A day takes a second. One that takes this long goes round in circles at one moment of its clock.
const REAL_TIME_MAX: Duration = Duration::from_mins(5);
/// Longer than that: the process itself ends such a day, and tells its story.
const PROCESS_MAX: Duration = Duration::from_mins(6);
/// The end of a story that goes round in circles.
const LINES_MAX: usize = 500;

/// Simulate bad days of a cluster, its clouds and its managers.
///
/// Each seed is one day: it decides what people do, which requests fail and how, which processes
/// die, and when. A day that ends badly is printed line by line, and can be lived through again:
/// the same seed is the same day, to the last line.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  simulate --seeds 500\n  simulate --seeds 10000 --seed-from 500\n  simulate --one 4711 --story"
)]
struct Args {
    /// How many days.
    #[arg(long, default_value_t = 500, env = "SEEDS")]
    seeds: u64,
    /// The first one's seed.
    #[arg(long, default_value_t = 0, env = "SEED_FROM")]
    seed_from: u64,
    /// How many at once; 0 is one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Go on after a bad end, to the last seed.
    #[arg(long)]
    keep_going: bool,
    /// Live through the day of this seed alone, in this process.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "seed_from", "jobs", "keep_going"])]
    one: Option<u64>,
    /// Tell the story also when it ends well.
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
    // Whether the manager or the simulation panics: what led to it is worth more than the stack.
    let lived = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(Plan::of(seed), &told))));
    let outcome = lived.unwrap_or_else(|_| Outcome {
        failures: vec!["VIOLATION somebody panicked: standard error says who".to_owned()],
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

/// Ends this process when the day takes too long, with the end of its story.
fn end_in_time(told: &OnceLock<Story>) {
    let end = Instant::now() + REAL_TIME_MAX;
    while Instant::now() < end {
        thread::park_timeout(end - Instant::now());
    }
    let lines = told.get().map(Story::lines).unwrap_or_default();
    let mut out = io::stdout().lock();
    for line in lines.iter().skip(lines.len().saturating_sub(LINES_MAX)) {
        // Nobody may be left to read it.
        drop(writeln!(out, "{line}"));
    }
    drop(writeln!(out, "WRONG the day had not ended after {} s", REAL_TIME_MAX.as_secs()));
    drop(out.flush());
    std::process::exit(1);
}

/// The seed, and the story where it ended badly.
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
            say(&format!("{story}\nseed {seed} ended badly; live through it again: make simulate SEED={seed}"));
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

/// In a process of its own.
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
    // Nobody may be left to read it.
    drop(writeln!(io::stderr(), "{line}"));
}
