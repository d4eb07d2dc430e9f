//! Skysail and a manager in Go, side by side: `make bench` runs it whole, which takes hours;
//! `--help` says how to run a part.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skysail_test_bench::{
    side_by_side::{
        Contestant, Growth, Programs, Record, Scenario, Size, Task, growth_plot, growth_table, markdown, measure,
        measure_deletion, measure_replacement,
    },
    target_folder,
};
use skysail_test_support::apiserver::ApiServer;

/// Measures Skysail and a manager in Go over upstream's controllers: the same simulated cloud, a
/// real kube-apiserver, one after the other.
///
/// A quick look, in less than a minute: --nodes 50 --services 20 --rounds 1 --idle-seconds 1 --only
/// go-tuned --only skysail-tuned
#[derive(Debug, Parser)]
struct Options {
    /// Nodes that wait for the manager.
    #[arg(long, default_value_t = 2_000)]
    nodes: usize,
    /// Services of type `LoadBalancer` that wait for the manager.
    #[arg(long, default_value_t = 1_000)]
    services: usize,
    /// Rounds: each contestant runs once in every round; every second round has the reverse order.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Latency of the cloud for each request, in milliseconds.
    #[arg(long, default_value_t = 20)]
    latency_ms: u64,
    /// Seconds that the idle manager is watched after its last request to the cloud.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Timeout of a run, in seconds.
    #[arg(long, default_value_t = 3_600)]
    limit_seconds: u64,
    /// Contestants to measure; all if none is named.
    #[arg(long, value_enum)]
    only: Vec<Contestant>,
    /// Scenarios to measure: start on an existing cluster, the same with several sizes, deletion of
    /// a node while others register, replacement of nodes. All if none is named.
    #[arg(long, value_enum)]
    part: Vec<Part>,
    /// Numbers of nodes of the growth scenario; each with half as many Services.
    #[arg(long, value_delimiter = ',', default_values_t = [250, 500, 1_000, 2_000, 4_000])]
    growth: Vec<usize>,
    /// Nodes that are replaced.
    #[arg(long, default_value_t = 500)]
    replaced: usize,
    /// Where figures.json, figures.md and growth.svg go; by default `bench` in Cargo's target
    /// folder.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Start,
    Growth,
    Deletion,
    Replacement,
}

fn main() -> Result<()> {
    let options = Options::parse();
    // Each load balancer of the simulated cloud is a socket of this process.
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })
        .context("raising the limit of open files")?;
    let runtime = tokio::runtime::Runtime::new().context("starting tokio")?;
    runtime.block_on(Bench::new(options)?.run())
}

struct Bench {
    options: Options,
    task: Task,
    programs: Programs,
    out: PathBuf,
    records: Vec<Record>,
}

impl Bench {
    fn new(options: Options) -> Result<Self> {
        let out = match &options.out {
            Some(out) => out.clone(),
            None => target_folder()?.join("bench"),
        };
        fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
        ApiServer::prepare()?;
        let seconds = Duration::from_secs;
        let task = Task {
            latency: Duration::from_millis(options.latency_ms),
            idle: seconds(options.idle_seconds),
            limit: seconds(options.limit_seconds),
        };
        Ok(Self { task, programs: Programs::prepare()?, out, records: Vec::new(), options })
    }

    async fn run(mut self) -> Result<()> {
        let size = Size { nodes: self.options.nodes, services: self.options.services };
        let tuned = [Contestant::GoTuned, Contestant::SkysailTuned];
        for round in 1..=self.options.rounds {
            if self.has(Part::Start) {
                self.round(Scenario::Start, &Contestant::ALL, size, round).await?;
            }
            if self.has(Part::Growth) {
                for nodes in self.options.growth.clone() {
                    self.round(Scenario::Start, &tuned, Size { nodes, services: nodes / 2 }, round).await?;
                }
            }
            if self.has(Part::Deletion) {
                self.round(Scenario::Deletion, &tuned, size, round).await?;
            }
            if self.has(Part::Replacement) {
                self.round(Scenario::Replacement, &tuned, size, round).await?;
            }
        }
        self.write()
    }

    fn has(&self, part: Part) -> bool {
        self.options.part.is_empty() || self.options.part.contains(&part)
    }

    /// Runs each contestant once, in an order that changes with the round, because the state of the
    /// machine changes during a round.
    async fn round(&mut self, scenario: Scenario, contestants: &[Contestant], size: Size, round: usize) -> Result<()> {
        let takes_part = |who: &Contestant| self.options.only.is_empty() || self.options.only.contains(who);
        let mut contestants: Vec<Contestant> = contestants.iter().copied().filter(takes_part).collect();
        if round.is_multiple_of(2) {
            contestants.reverse();
        }
        for contestant in contestants {
            // The start with this size may already have been measured for the table.
            let is_same = |record: &&Record| {
                (record.scenario, record.contestant, record.size, record.round) == (scenario, contestant, size, round)
            };
            if self.records.iter().any(|record| is_same(&record)) {
                continue;
            }
            say(&format!(
                "{contestant}: {scenario:?}, {} nodes, {} Services, round {round}",
                size.nodes, size.services
            ));
            let figures = match scenario {
                Scenario::Start => measure(&self.programs, contestant, size, &self.task).await,
                Scenario::Deletion => measure_deletion(&self.programs, contestant, size, &self.task).await,
                Scenario::Replacement => {
                    measure_replacement(
                        &self.programs,
                        contestant,
                        (size, self.options.replaced.min(size.nodes)),
                        &self.task,
                    )
                    .await
                }
            };
            let figures = figures.with_context(|| format!("{contestant}, {scenario:?}, round {round}"))?;
            say(&format!(
                "  nodes {:.1} s, Services {:.1} s, load balancers {:.1} s, CPU {:.1} s, then {:.2} s, resident {:.0} MiB, {} ensure and update calls",
                figures.nodes_s,
                figures.services_s,
                figures.backends_s,
                figures.cpu_s,
                figures.cpu_idle_s,
                figures.resident_mib,
                figures.load_balancer_calls(),
            ));
            self.records.push(Record { scenario, contestant, size, round, figures });
            // Write after each run, so that an interrupted benchmark keeps its figures.
            self.write()?;
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        let mut text = markdown(&self.records);
        let curves = self.curves();
        if curves.values().any(|growth| growth.len() > 1) {
            text += &format!("### Growth\n\n{}", growth_table(&curves));
            self.save("growth.svg", &growth_plot(&curves)?)?;
        }
        self.save("figures.md", &text)?;
        self.save("figures.json", &serde_json::to_string_pretty(&self.records)?)
    }

    fn curves(&self) -> BTreeMap<Contestant, Growth> {
        let mut curves = BTreeMap::<Contestant, Growth>::new();
        let tuned = |record: &&Record| matches!(record.contestant, Contestant::GoTuned | Contestant::SkysailTuned);
        for record in self.records.iter().filter(|record| record.scenario == Scenario::Start).filter(tuned) {
            curves.entry(record.contestant).or_default().entry(record.size).or_default().push(record.figures.clone());
        }
        curves
    }

    fn save(&self, name: &str, text: &str) -> Result<()> {
        let path = self.out.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }
}

#[expect(clippy::print_stderr, reason = "a benchmark of hours says how far it is")]
fn say(line: &str) {
    eprintln!("{line}");
}
