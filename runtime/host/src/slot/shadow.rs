//! The shadow phase: a new release and the active one are asked the same questions, which change
//! nothing, and their answers are compared before the new release may serve.
//!
//! # Rule
//! - The questions are `load-balancers.get` about the Services of the last calls,
//!   `instances.describe` about the last nodes whose existence and whose metadata a controller
//!   asked for, and the lists of load balancers and routes.
//! - With a plan both are also asked, in a dry run, to `load-balancers.ensure` the same Services
//!   with their last nodes. The answer is what they would send to change the cloud.
//! - Only requests that change nothing leave the host (`HttpBudget::reading`), and Events are
//!   dropped. The calls do not count for probation. Questions to a cloud whose API reads by POST
//!   count as unanswered, unless the operator's rules list its reads.
//! - A difference counts where the active release answers the second time as the first. Otherwise
//!   the cloud has changed in between.
//! - There is nothing to compare where the active release has no answer, where the cloud failed a
//!   request of the new release, or where the new release has no answer by a fault that is not its
//!   own. A new release that traps or meets a limit is refused. Any other difference is reported,
//!   and the release is refused where the operator wants that.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use skysail_provider::{
    Call, Code, Detail, DryRun, Error, Instance, Instances as _, Interface, LoadBalancerStatus, LoadBalancers as _,
    NodeSet, OwnedLoadBalancer, Route, Service, text::one_line,
};
use skysail_slot::{Fault, OnDifference, RefusalReason, RolloutOptions, ShadowStatus};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use crate::{SandboxedProvider, fault};

#[cfg(test)]
mod tests;

/// Services that are remembered: each is one question, with two requests or more to the cloud.
const SERVICES_MAX: usize = 16;

/// The time for all questions: an operator waits for the release.
const TIME_MAX: Duration = Duration::from_mins(1);

/// Differences that are reported.
const TOLD_MAX: usize = 5;

/// Longest answer that is reported, in bytes.
const ANSWER_BYTES_MAX: usize = 300;

/// What the controllers asked lately; kept only where the settings have a shadow phase.
#[derive(Default)]
pub(super) struct QuestionLog(Mutex<Option<KeptQuestions>>);

#[derive(Default)]
struct KeptQuestions {
    /// The newest last.
    services: VecDeque<Question>,
    /// Keys of the same Services, the newest last.
    backends: VecDeque<Question>,
    existence: Option<Question>,
    metadata: Option<Question>,
    routes: Option<Question>,
    inventory: Option<Question>,
}

/// A call that changes nothing, in a form that can be repeated.
#[derive(Clone)]
struct Question {
    call: Call,
    about: About,
}

#[derive(Clone)]
enum About {
    LoadBalancer { cluster: String, service: Box<Service> },
    Backends { cluster: String, service: Box<Service>, nodes: NodeSet },
    LoadBalancers { cluster: String },
    Nodes { nodes: NodeSet, detail: Detail },
    Routes { cluster: String },
}

// === impl Memory ===

impl QuestionLog {
    /// Whether anything is kept from now on.
    pub(super) fn keeps(&self, keeps: bool) {
        let mut kept = self.kept();
        match (&*kept, keeps) {
            (None, true) => *kept = Some(KeptQuestions::default()),
            (Some(_), false) => *kept = None,
            (None, false) | (Some(_), true) => {}
        }
    }

    pub(super) fn service(&self, call: &Call, cluster: &str, service: &Service) {
        self.keep(|kept| {
            kept.forget(&service.uid);
            if kept.services.len() == SERVICES_MAX {
                kept.services.pop_front();
            }
            let about = About::LoadBalancer { cluster: cluster.to_owned(), service: Box::new(service.clone()) };
            kept.services.push_back(question(call, about));
        });
    }

    /// The nodes that the load balancer was to have.
    pub(super) fn backends(&self, call: &Call, cluster: &str, service: &Service, nodes: &NodeSet) {
        self.keep(|kept| {
            kept.backends.retain(|question| question.service() != Some(&service.uid));
            if kept.backends.len() == SERVICES_MAX {
                kept.backends.pop_front();
            }
            let (cluster, service) = (cluster.to_owned(), Box::new(service.clone()));
            kept.backends.push_back(question(call, About::Backends { cluster, service, nodes: nodes.clone() }));
        });
    }

    /// The Service is being deleted.
    pub(super) fn forget(&self, uid: &str) {
        self.keep(|kept| {
            kept.forget(uid);
            kept.backends.retain(|question| question.service() != Some(uid));
        });
    }

    pub(super) fn nodes(&self, call: &Call, nodes: &NodeSet, detail: Detail) {
        let about = About::Nodes { nodes: nodes.clone(), detail };
        self.keep(|kept| {
            let nodes = match detail {
                Detail::State => &mut kept.existence,
                Detail::Metadata => &mut kept.metadata,
            };
            *nodes = Some(question(call, about));
        });
    }

    pub(super) fn routes(&self, call: &Call, cluster: &str) {
        self.keep(|kept| kept.routes = Some(question(call, About::Routes { cluster: cluster.to_owned() })));
    }

    pub(super) fn inventory(&self, call: &Call, cluster: &str) {
        self.keep(|kept| kept.inventory = Some(question(call, About::LoadBalancers { cluster: cluster.to_owned() })));
    }

    /// The questions of a shadow phase, and those of a plan.
    fn questions(&self, options: &RolloutOptions) -> Vec<Question> {
        let kept = self.kept();
        let Some(KeptQuestions { services, backends, existence, metadata, routes, inventory }) = &*kept else {
            return Vec::new();
        };
        let reads = services.iter().rev().chain(existence).chain(metadata).chain(routes).chain(inventory);
        let reads = reads.filter(|_| options.shadow.is_some());
        reads.chain(backends.iter().rev().filter(|_| options.plan.is_some())).cloned().collect()
    }

    fn keep(&self, keep: impl FnOnce(&mut KeptQuestions)) {
        if let Some(kept) = &mut *self.kept() {
            keep(kept);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<KeptQuestions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptQuestions {
    fn forget(&mut self, uid: &str) {
        self.services.retain(|question| question.service() != Some(uid));
    }
}

/// Keeps the fence of the call, so that no call is repeated after the lease is lost, and drops
/// Events.
fn question(call: &Call, about: About) -> Question {
    Question { call: Call { events: None, ..call.clone() }, about }
}

// === impl Question ===

impl Question {
    fn interface(&self) -> Interface {
        match self.about {
            About::LoadBalancer { .. } | About::Backends { .. } => Interface::LoadBalancers,
            About::LoadBalancers { .. } => Interface::LoadBalancerInventory,
            About::Nodes { .. } => Interface::Instances,
            About::Routes { .. } => Interface::Routes,
        }
    }

    /// UID of the Service that the question is about.
    fn service(&self) -> Option<&str> {
        match &self.about {
            About::LoadBalancer { service, .. } | About::Backends { service, .. } => Some(&service.uid),
            About::LoadBalancers { .. } | About::Nodes { .. } | About::Routes { .. } => None,
        }
    }

    /// Whether the question belongs to a plan.
    const fn is_planned(&self) -> bool {
        matches!(self.about, About::Backends { .. })
    }

    /// For people: `load-balancers.get of Service default/web`.
    fn shown(&self) -> String {
        match &self.about {
            About::LoadBalancer { service, .. } => {
                format!("load-balancers.get of Service {}/{}", service.namespace, service.name)
            }
            About::Backends { service, nodes, .. } => {
                let Service { namespace, name, .. } = &**service;
                format!("dry run of load-balancers.ensure of Service {namespace}/{name} with {} nodes", nodes.len())
            }
            About::LoadBalancers { .. } => "load-balancer-inventory.list".to_owned(),
            About::Nodes { nodes, detail } => {
                let what = if *detail == Detail::Metadata { "metadata" } else { "existence" };
                format!("instances.describe of the {what} of {} nodes", nodes.len())
            }
            About::Routes { .. } => "routes.list".to_owned(),
        }
    }

    async fn ask(&self, provider: &SandboxedProvider) -> Result<Answer, Error> {
        let Self { call, about } = self;
        match about {
            About::LoadBalancer { cluster, service } => {
                Ok(Answer::LoadBalancer(provider.get(call, cluster, service).await?))
            }
            About::Backends { cluster, service, nodes } => {
                let dry_run = DryRun::default();
                let call = Call { dry_run: Some(dry_run.clone()), ..call.clone() };
                let status = provider.ensure(&call, cluster, service, nodes).await;
                let (held, omitted) = dry_run.held();
                if held.is_empty() {
                    return Ok(Answer::LoadBalancer(Some(status?)));
                }
                // Whatever the guest made of the requests that were held back.
                let held = held.into_iter().map(|held| (format!("{} {}", held.method, held.url), held.body));
                Ok(Answer::Writes(held.collect(), omitted))
            }
            About::LoadBalancers { cluster } => {
                let mut list = skysail_provider::LoadBalancerInventory::list(provider, call, cluster).await?;
                list.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(Answer::LoadBalancers(list))
            }
            About::Nodes { nodes, detail } => {
                let answers = provider.describe(call, nodes, *detail).await?;
                // A controller acts on the code; the message is for people.
                let answers = nodes
                    .as_slice()
                    .iter()
                    .zip(answers)
                    .map(|(node, answer)| (node.name.clone(), answer.map_err(|error| error.code.category())));
                Ok(Answer::Nodes(answers.collect()))
            }
            About::Routes { cluster } => {
                let mut list = skysail_provider::Routes::list(provider, call, cluster).await?;
                list.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(Answer::Routes(list))
            }
        }
    }
}

/// What a release answers. Lists have no order by contract and are sorted.
#[derive(PartialEq)]
enum Answer {
    LoadBalancer(Option<LoadBalancerStatus>),
    LoadBalancers(Vec<OwnedLoadBalancer>),
    Nodes(Vec<(String, Result<Instance, &'static str>)>),
    Routes(Vec<Route>),
    /// Method and URL of each request that was held back, with its body, and the number of further
    /// ones.
    Writes(Vec<(String, Vec<u8>)>, usize),
}

impl Answer {
    /// One text for each entry.
    fn entries(&self) -> Vec<String> {
        match self {
            Self::LoadBalancer(status) => vec![json!(status).to_string()],
            Self::LoadBalancers(list) => list.iter().map(|one| json!(one).to_string()).collect(),
            Self::Nodes(list) => {
                let text = |(name, answer): &(String, Result<Instance, &'static str>)| match answer {
                    Ok(instance) => json!({ name: instance }).to_string(),
                    Err(code) => json!({ name: code }).to_string(),
                };
                list.iter().map(text).collect()
            }
            Self::Routes(list) => list.iter().map(|one| json!(one).to_string()).collect(),
            Self::Writes(list, _) => {
                list.iter().map(|(line, body)| format!("{line} with {} bytes", body.len())).collect()
            }
        }
    }

    fn told(&self) -> String {
        one_line(&self.entries().join(","), ANSWER_BYTES_MAX)
    }

    /// The entries that the other answer does not have.
    fn beyond(&self, other: &Self) -> String {
        let others: BTreeSet<String> = other.entries().into_iter().collect();
        let own = self.entries();
        let beyond: Vec<_> = own.iter().filter(|entry| !others.contains(*entry)).take(TOLD_MAX).cloned().collect();
        let of = if own.len() > 1 { format!(" among {} entries", own.len()) } else { String::new() };
        one_line(&format!("[{}]{of}", beyond.join(",")), ANSWER_BYTES_MAX)
    }
}

/// The result of one question.
enum Comparison {
    Same,
    Unanswered,
    Different(String),
    Broken(String),
}

/// Asks both releases what the controllers asked lately. Returns the report, and why the release
/// may not serve, if it may not.
pub(super) async fn shadow(
    memory: &QuestionLog,
    options: &RolloutOptions,
    active: &SandboxedProvider,
    candidate: &SandboxedProvider,
) -> (ShadowStatus, Result<(), (RefusalReason, String)>) {
    let mut report = ShadowStatus { digest: candidate.release().digest().to_owned(), ..ShadowStatus::default() };
    let (before, now) = (active.compared(), candidate.compared());
    let end = Instant::now() + TIME_MAX;
    let (mut broken, mut writing) = (None, Vec::new());
    let mut asked_writes = 0;
    for question in &memory.questions(options) {
        let has = |provider: &SandboxedProvider| provider.release().exports().has(question.interface());
        if !has(&before) || !has(&now) {
            continue;
        }
        let Ok(comparison) = timeout_at(end, compare(question, &before, &now)).await else { break };
        report.asked += 1;
        asked_writes += u64::from(question.is_planned());
        let difference = match comparison {
            Comparison::Same => continue,
            Comparison::Unanswered => {
                report.unanswered += 1;
                continue;
            }
            Comparison::Different(text) => text,
            Comparison::Broken(text) => broken.insert(text).clone(),
        };
        report.differing += 1;
        if question.is_planned() && broken.is_none() {
            writing.push(difference.clone());
        }
        if report.differences.len() < TOLD_MAX {
            report.differences.push(difference);
        }
        if broken.is_some() {
            break;
        }
    }
    let judged = judge(options, &report, broken, (asked_writes, &writing));
    (report, judged)
}

/// Why the release may not serve, if it may not. `writing` are the differences of a plan, of this
/// number of dry runs.
fn judge(
    options: &RolloutOptions,
    report: &ShadowStatus,
    broken: Option<String>,
    (dry_runs, writing): (u64, &[String]),
) -> Result<(), (RefusalReason, String)> {
    let ShadowStatus { asked, differing, differences, .. } = report;
    let (shadow, plan) = (options.shadow.map(|shadow| shadow.on_difference), options.plan.map(|plan| plan.on_writes));
    let answers = *differing - writing.len() as u64;
    match broken {
        Some(text) => Err((
            RefusalReason::ShadowBroken,
            format!(
                "it failed a call that the active release answered: {text}; offer a corrected release, or leave rollout.shadow \
                 out"
            ),
        )),
        None if !writing.is_empty() && plan == Some(OnDifference::Refuse) => Err((
            RefusalReason::PlanWrites,
            format!(
                "in {} of {dry_runs} dry runs it would change the cloud where the release that serves would not: {}; offer a release that \
                 would not, or set rollout.plan.onWrites to Report",
                writing.len(),
                writing.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("; ")
            ),
        )),
        None if answers > 0 && shadow == Some(OnDifference::Refuse) => Err((
            RefusalReason::ShadowDiffers,
            format!(
                "of {asked} questions it answered {differing} otherwise than the release that serves: {}; offer a release that agrees, or set \
                 rollout.shadow.onDifference to Report",
                differences.join("; ")
            ),
        )),
        None => Ok(()),
    }
}

async fn compare(question: &Question, before: &SandboxedProvider, now: &SandboxedProvider) -> Comparison {
    let Ok(expected) = question.ask(before).await else { return Comparison::Unanswered };
    let answer = question.ask(now).await;
    let seen = now.seen();
    if answer.as_ref().is_ok_and(|answer| *answer == expected) {
        return Comparison::Same;
    }
    // A guest may turn a failed request into an error of its own, a trap or a shorter list. And the
    // cloud may have changed between the two answers.
    if seen.cloud_failed || question.ask(before).await.ok().as_ref() != Some(&expected) {
        return Comparison::Unanswered;
    }
    match answer {
        Err(error)
            if fault::of_compared(error.code, error.limit.map(|hit| hit.limit), seen) != Some(Fault::Release) =>
        {
            Comparison::Unanswered
        }
        Err(error) if matches!(error.code, Code::Trapped | Code::LimitExceeded) => {
            Comparison::Broken(format!("{}: {}", question.shown(), one_line(&error.message, ANSWER_BYTES_MAX)))
        }
        Err(error) => {
            let error = one_line(&format!("{}: {}", error.code.category(), error.message), ANSWER_BYTES_MAX);
            Comparison::Different(format!("{}: {} before, now it fails ({error})", question.shown(), expected.told()))
        }
        Ok(answer) => {
            let what = question.shown();
            // A guest may answer with a hundred thousand entries.
            let told = spawn_blocking(move || {
                format!("{} before, {} now", expected.beyond(&answer), answer.beyond(&expected))
            });
            // A task that was cancelled is a process that ends.
            let told = told.await.unwrap_or_default();
            Comparison::Different(format!("{what}: {told}"))
        }
    }
}
