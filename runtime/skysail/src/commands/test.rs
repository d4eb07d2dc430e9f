//! `skysail test`: tests a component with recorded calls, or against the author's cloud.
//!
//! # Flow
//! 1. read: the files of the command line.
//! 2. recordings (`test/recordings.rs`): each recorded call is replayed and compared.
//! 3. cloud (`test/suite.rs`): the component serves in a slot, as in the manager. Each case makes
//!    calls through `test/bench.rs`, which notes the requests, and lets single requests fail. What
//!    a case has created is deleted at its end.
//! 4. report (`test/report.rs`, `test/junit.rs`).

mod bench;
mod input;
mod junit;
mod recordings;
mod report;
mod requests;
mod suite;
mod used;

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::{BufRead as _, IsTerminal as _, Write as _},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use prometheus_client::registry::Registry;
use skysail_host::{
    Disturber,
    recording::Redact,
    slot::{Offer, SlotServices},
};
use skysail_provider::{Interface, NodeSet, Provider, Service};
use tokio::time::Instant;

use self::{
    bench::{Bench, Plan, Setting},
    report::Report,
    suite::{CASES, Case, Verdict},
};
use crate::{
    args::{LoggingFormat, TestArgs},
    commands::{call, replay::COMPONENT_BYTES_MAX, symbolize},
    exit::{MarkExt as _, Reason},
    output, output_file,
    provider_file::ProviderSpec,
    providers,
    signals::{OF_A_SERVICE, Signals},
    telemetry,
};

/// Tests the component.
///
/// # Errors
/// A file or a flag is wrong, the component is refused, a case failed, or something is left in the
/// cloud.
pub(crate) fn run(args: &TestArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(test(args))
}

async fn test(args: &TestArgs) -> anyhow::Result<()> {
    let author = Author::read(args).or_exit(Reason::Usage)?;
    let bytes_max = author.cloud.as_ref().map_or(COMPONENT_BYTES_MAX, |cloud| cloud.spec.limits.component_bytes);
    let spec = author.cloud.as_ref().map(|cloud| &cloud.spec);
    let offer = input::offer(args.component.as_deref(), spec, bytes_max).or_exit(Reason::Usage)?;
    let mut services = providers::services(&mut Registry::default())?;
    let component = offer.origin.strip_prefix("file ").unwrap_or(&offer.origin).to_owned();
    let symbols = symbolize::of(&args.symbols, Path::new(&component), &offer.bytes)?;
    services.recorder = services.recorder.with_symbols(symbols);
    let mut report = Report { component, ..Report::default() };
    if !args.recordings.is_empty() {
        recordings::test(&services, &offer, &args.recordings, &mut report).await?;
    }
    let mut stopped = false;
    if let Some(cloud) = author.cloud {
        stopped = against_cloud(args, (services, offer), cloud, &mut report).await?;
    }
    output::print(report.shown(args.output)?.as_bytes())?;
    if let Some(file) = &args.junit {
        junit::write(&report, file)?;
    }
    let good = report.is_good() && !stopped;
    let rest = if report.left.is_empty() { "" } else { "; what is left in the cloud is named above: delete it there" };
    let stop = if stopped { "; the run was stopped" } else { "" };
    if good { Ok(()) } else { Err(anyhow!("{}: {}{stop}{rest}", report.component, report.summary())) }
}

/// What the author gives.
struct Author {
    /// Without it, only recordings are tested.
    cloud: Option<AuthorsCloud>,
}

struct AuthorsCloud {
    spec: ProviderSpec,
    nodes: NodeSet,
    service: Service,
}

impl Author {
    fn read(args: &TestArgs) -> anyhow::Result<Self> {
        if let Some(file) = &args.junit {
            output_file::check("--junit", file)?;
        }
        if args.provider.provider_file.is_none() {
            ensure!(
                !args.recordings.is_empty(),
                "nothing to test with; give --recordings FOLDER, or --provider-file FILE for tests against a cloud"
            );
            ensure!(
                args.provider.cloud_config.is_none(),
                "--cloud-config has no effect on recordings, which have their own; give --provider-file, too"
            );
            return Ok(Self { cloud: None });
        }
        let spec = call::spec(&args.provider)?;
        let (nodes, service) = (input::nodes(args)?, input::service(args.service.as_deref())?);
        ensure!(!args.route_cidrs.is_empty(), "--route-cidrs is empty; give at least one destination");
        Ok(Self { cloud: Some(AuthorsCloud { spec, nodes, service }) })
    }
}

/// Tests the component against its cloud; returns whether a signal stopped the run.
async fn against_cloud(
    args: &TestArgs,
    (mut services, offer): (SlotServices, Offer),
    cloud: AuthorsCloud,
    report: &mut Report,
) -> anyhow::Result<bool> {
    let AuthorsCloud { spec, nodes, service } = cloud;
    let disturber = Disturber::default();
    services.recorder = services.recorder.disturbed_by(disturber.clone(), Redact::default());
    let recorder = services.recorder.clone();
    let slot = call::slot(services, providers::slot_options(&spec, None)?, offer).await?;
    let provider: Arc<dyn Provider> = Arc::new(slot);
    let (egress, limits) = (Arc::clone(&spec.egress), spec.limits.clone());
    confirm(args, &*provider, (&spec.name, &nodes)).or_exit(Reason::Usage)?;
    let plan = Plan {
        cluster: args.cluster_name.clone(),
        nodes,
        service,
        route_cidrs: args.route_cidrs.clone(),
        fault_requests: args.fault_requests,
        wait: args.wait,
        // Random: the hasher has a key of its own in each process.
        run: RandomState::new().build_hasher().finish(),
    };
    let setting = Setting { provider, records: recorder.subscribe(), disturber, egress, limits };
    let mut bench = Bench::new(setting, plan, args.reads.clone());
    let mut signals = Signals::listen(&OF_A_SERVICE)?;
    let stopped = run_cases(&mut bench, &mut signals, report).await;
    report.used.extend(std::mem::take(&mut bench.used));
    Ok(stopped)
}

/// Runs all cases up to a signal, and deletes what they created.
async fn run_cases(bench: &mut Bench, signals: &mut Signals, report: &mut Report) -> bool {
    let mut stopped = None;
    let provider = bench.provider();
    for interface in Interface::ALL.into_iter().filter(|interface| !interface.is_for_tools()) {
        if !provider.has(interface) {
            report.not_tested(interface, "the component does not export the interface");
        } else if !CASES.iter().any(|case| case.interface == interface) {
            report.not_tested(interface, "the suite has no case for the interface; use `skysail call`");
        }
    }
    let cases: Vec<&Case> = CASES.iter().filter(|case| provider.has(case.interface)).collect();
    let mut complete_nodes = true;
    for (number, case) in cases.iter().enumerate() {
        let (of, began) = ((case.interface, case.name), Instant::now());
        if let Some(signal) = stopped {
            report.judged(of, Ok(Verdict::NotTested(format!("the run was stopped by {signal}"))), began.elapsed());
            continue;
        }
        output::say(&format!("case {} of {}: {}: {}", number + 1, cases.len(), case.interface, case.name));
        let judged = async {
            if std::mem::take(&mut complete_nodes) {
                bench.complete_nodes().await.context("asking for the addresses of the machines")?;
            }
            (case.run)(bench).await
        };
        let judged = tokio::select! {
            judged = judged => judged,
            signal = signals.end() => {
                output::say("stopping: what the run created is deleted; a second signal ends this at once");
                stopped = Some(signal);
                Ok(Verdict::NotTested(format!("the run was stopped by {signal}")))
            }
        };
        if let Err(error) = &judged {
            output::say(&format!("FAILED: {error:#}"));
        }
        report.judged(of, judged, began.elapsed());
        drop(delete_created(bench, signals).await);
    }
    bench.try_the_rest_again();
    report.left = delete_created(bench, signals).await;
    // The interfaces in the order of the contract.
    report.results.sort_by_key(|result| Interface::ALL.iter().position(|interface| interface.name() == result.subject));
    stopped.is_some()
}

/// Deletes what a case created, up to a signal, and returns what remains.
async fn delete_created(bench: &mut Bench, signals: &mut Signals) -> Vec<String> {
    bench.disturber.end();
    let deleting = async {
        let mut left = bench.delete_balancers().await;
        left.extend(suite::delete_routes(bench).await);
        left
    };
    tokio::select! {
        left = deleting => left,
        _ = signals.end() => bench.names_of_the_rest(),
    }
}

/// Asks a person before the first write.
fn confirm(args: &TestArgs, provider: &dyn Provider, (name, nodes): (&str, &NodeSet)) -> anyhow::Result<()> {
    let writes: Vec<_> = [(Interface::LoadBalancers, "load balancers"), (Interface::Routes, "routes")]
        .into_iter()
        .filter(|(interface, _)| provider.has(*interface))
        .map(|(_, what)| what)
        .collect();
    if args.yes || writes.is_empty() {
        return Ok(());
    }
    let nodes: Vec<_> = nodes.as_slice().iter().map(|node| &*node.name).collect();
    let what = format!(
        "skysail test creates, changes and deletes {} in the cloud of the provider {name:?}, for the nodes {}",
        writes.join(" and "),
        nodes.join(", ")
    );
    if !std::io::stdin().is_terminal() {
        bail!("{what}; standard input is no terminal, so give --yes if you want that");
    }
    let mut error = std::io::stderr().lock();
    write!(error, "{}. Continue? [y/N] ", output::plain(&what)).context("cannot ask on standard error")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer from standard input")?;
    ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "nothing was tested; answer y, or give --yes");
    Ok(())
}
