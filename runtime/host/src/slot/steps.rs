//! The steps of a release on its way to serve: each reaches one stage or says why not.

use std::sync::Arc;

use skysail_provider::{Info, Interface};

use super::{
    Active, CandidateStatus, Offer, Reason, Refusal, Release, Slot, SlotOptions, Stage, Step, drain::Drain,
    is_same_identity, shadow::Compared, status::Shared,
};
use crate::{
    Fault, Problem, Sandbox, SandboxedProvider, Severity,
    admission::{self, RefusalCode},
    call::Failed,
    egress::Origin,
    fault,
    identity::{try_check_config, try_describe},
    jail::{CompileError, CompileLimits, Compiled},
};

/// Findings of `check-config` that are repeated in a reason.
const PROBLEMS_SHOWN_MAX: usize = 5;

/// A release on its way. Dropping it takes it out of the status.
pub(super) struct Candidate<'a> {
    digest: [u8; 32],
    status: CandidateStatus,
    shared: &'a Shared,
}

impl Candidate<'_> {
    /// The next stage is reached.
    fn advance(&mut self) {
        if let Some(next) = self.status.stage.next() {
            self.shared.step(&self.status.digest, self.status.stage, Step::To(next));
            self.status.stage = next;
            self.shared.candidate(Some(self.status.clone()));
        }
    }

    pub(super) fn refuse(&self, reason: Reason, fault: Fault, text: &str) -> Refusal {
        self.shared.step(&self.status.digest, self.status.stage, Step::Refused(reason));
        Refusal {
            digest: self.status.digest.clone(),
            origin: self.status.origin.clone(),
            stage: self.status.stage,
            code: reason.category(),
            reason: format!("{}: {text}", self.status.origin),
            lasting: fault.is_lasting(),
            retried: false,
        }
    }
}

impl Candidate<'_> {
    /// A function of `identity` did not answer; `must` says what the release has to do.
    fn unanswered(&self, reason: Reason, function: &str, Failed { error, fault }: &Failed, must: &str) -> Refusal {
        let (code, fault) = (error.code.category(), fault.unwrap_or(Fault::Machine));
        let remedy = if fault.is_lasting() { must } else { "the release is not to blame, and is tried again" };
        self.refuse(reason, fault, &format!("its identity.{function} failed ({code}: {error}): {remedy}"))
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        self.shared.candidate(None);
    }
}

impl Slot {
    /// Takes an offer through every stage up to the last before it serves.
    pub(super) async fn load(
        &self,
        options: &SlotOptions,
        sandbox: &Arc<Sandbox>,
        offer: &Offer,
        compared: Compared,
    ) -> Result<Active, Refusal> {
        let digest = admission::digest_of(&offer.bytes);
        let status = CandidateStatus {
            digest: admission::digest_text(&digest),
            origin: offer.origin.clone(),
            stage: Stage::Offered,
        };
        self.shared.candidate(Some(status.clone()));
        let mut candidate = Candidate { digest, status, shared: &self.shared };
        let compiled = self.compile(&mut candidate, sandbox, offer).await?;
        candidate.advance();
        let release = Arc::new(link(&candidate, sandbox, &compiled).await?);
        candidate.advance();
        let info = self.described(&candidate, options, sandbox, &release).await?;
        candidate.advance();
        check(&candidate, sandbox, &release).await?;
        candidate.advance();
        let (interfaces, info) = (release.interfaces(), Arc::new(info));
        let provider = SandboxedProvider::new(Arc::clone(sandbox), release, Arc::clone(&info));
        if compared == Compared::Yes {
            self.shadow(&candidate, options, &provider).await?;
        }
        candidate.advance();
        self.shared.entered();
        let (offer, shared) = (offer.clone(), Arc::clone(&self.shared));
        Ok(Active { provider, info, interfaces, offer, compiled, drain: Drain::new(), shared })
    }

    /// Reaches `Verified` on the way: the jail judges and compiles in one run.
    async fn compile(
        &self,
        candidate: &mut Candidate<'_>,
        sandbox: &Sandbox,
        offer: &Offer,
    ) -> Result<Compiled, Refusal> {
        let (engine, limits) = (sandbox.wasmtime(), CompileLimits::from(sandbox.limits()));
        let active = self.active.load_full();
        if let Some(active) = active.filter(|active| active.provider.release().digest() == candidate.status.digest)
            && active.compiled.is_within(limits)
            && offer.bytes.len() as u64 <= limits.component_bytes
        {
            // What serves is loaded again, under other settings: that needs no jail, which may be
            // out of order just now.
            candidate.advance();
            return Ok(active.compiled.clone());
        }
        let component = (offer.bytes.clone(), candidate.digest);
        let compiled = self.services.compiler.compile(engine, component, limits, || candidate.advance()).await;
        if let Ok(Compiled { cost: Some(cost), cached: false, .. }) = &compiled {
            tracing::info!(
                provider.name = %self.name,
                component.digest = candidate.status.digest,
                cpu_ms = cost.cpu.as_millis(),
                memory_bytes = cost.memory_bytes,
                "component compiled"
            );
        }
        compiled.map_err(|error| {
            let reason = match &error {
                CompileError::NotAdmitted { refusals } => {
                    Reason::Admission(refusals.first().map_or(RefusalCode::Malformed, |refusal| refusal.code))
                }
                CompileError::Limit { .. } if error.is_of_the_component() => Reason::CompileLimit,
                CompileError::Refused { .. } | CompileError::TooDeep | CompileError::Crashed { .. } => {
                    Reason::CompileFailed
                }
                CompileError::Limit { .. } | CompileError::Jail { .. } | CompileError::OtherBuild { .. } => {
                    Reason::CompileUnavailable
                }
            };
            candidate.refuse(reason, fault::of_compilation(&error), &chain(&error))
        })
    }

    async fn described(
        &self,
        candidate: &Candidate<'_>,
        options: &SlotOptions,
        sandbox: &Arc<Sandbox>,
        release: &Release,
    ) -> Result<Info, Refusal> {
        let info = try_describe(sandbox, release).await.map_err(|failed| {
            let must =
                "describe is called once before a release serves and must answer the same each time, without a request";
            candidate.unanswered(Reason::DescribeFailed, "describe", &failed, must)
        })?;
        let interfaces = release.interfaces();
        if interfaces.contains(&Interface::Instances) && info.provider_id_schemes.is_empty() {
            let text = "it exports instances and describes no provider-id-schemes: name the scheme of its provider IDs in identity.describe";
            return Err(candidate.refuse(Reason::NoProviderIdScheme, Fault::Release, text));
        }
        let active = self.active.load_full();
        // What serves goes on with fewer rights where the operator takes some: it is no new
        // release.
        let is_new = active.as_ref().is_none_or(|active| active.provider.release().digest() != candidate.status.digest);
        if let Some(unmet) = unmet_egress(options, sandbox, &info) {
            if is_new {
                return Err(candidate.refuse(Reason::EgressNotAllowed, Fault::Operator, &unmet));
            }
            tracing::warn!(
                provider.name = %self.name,
                component.digest = candidate.status.digest,
                "what serves goes on, and would be refused at the next start: {unmet}"
            );
        }
        if let Some(active) = active {
            self.compare(candidate, options, &active, (&info, &interfaces))?;
        }
        Ok(info)
    }

    /// Whether the release may follow the active one.
    fn compare(
        &self,
        candidate: &Candidate<'_>,
        options: &SlotOptions,
        active: &Active,
        (info, interfaces): (&Info, &[Interface]),
    ) -> Result<(), Refusal> {
        let lost: Vec<_> =
            active.interfaces.iter().filter(|had| !interfaces.contains(had)).map(|lost| lost.name()).collect();
        if !lost.is_empty() && !options.allow_interface_loss {
            let text = format!(
                "it lacks {}, which the release that serves (version {}) has: what was made through it would be left alone; export it, or set \
                 allowInterfaceLoss for this provider",
                lost.join(", "),
                active.info.version
            );
            return Err(candidate.refuse(Reason::InterfaceLost, Fault::Release, &text));
        }
        if !is_same_identity(&active.info, info) && !options.allow_identity_change {
            let text = format!(
                "it calls itself {:?} with provider-ID schemes {:?}, and the release that serves is {:?} with {:?}: nodes and load balancers \
                 would no longer be known as this provider's; keep name and schemes, or set allowIdentityChange for this provider",
                info.name, info.provider_id_schemes, active.info.name, active.info.provider_id_schemes
            );
            return Err(candidate.refuse(Reason::IdentityChanged, Fault::Release, &text));
        }
        Ok(())
    }
}

/// What it says that it cannot do without, and may not have.
fn unmet_egress(options: &SlotOptions, sandbox: &Sandbox, info: &Info) -> Option<String> {
    if options.allow_unmet_egress {
        return None;
    }
    let refused = |origin: &String| match (Origin::parse(origin), sandbox.http()) {
        (Ok(origin), Some(http)) => http.policy().judge_origin(&origin).err().map(|refusal| refusal.to_string()),
        (Ok(_) | Err(_), _) => Some(format!("no rule allows origin {origin}")),
    };
    let refused: Vec<_> = info.egress.iter().filter_map(refused).take(PROBLEMS_SHOWN_MAX).collect();
    (!refused.is_empty()).then(|| {
        format!(
            "it says that it cannot do without what the operator has not allowed: {}; add egress rules if you want it to have that, or set \
             allowUnmetEgress for this provider",
            refused.join("; ")
        )
    })
}

async fn link(candidate: &Candidate<'_>, sandbox: &Arc<Sandbox>, compiled: &Compiled) -> Result<Release, Refusal> {
    let (sandbox, digest) = (Arc::clone(sandbox), candidate.status.digest.clone());
    let component = Arc::clone(&compiled.component);
    // Copies the machine code and links hundreds of functions: milliseconds.
    let linked = tokio::task::spawn_blocking(move || Release::new(&sandbox, &component, &digest)).await;
    match linked {
        Ok(Ok(release)) => Ok(release),
        Ok(Err(error)) => Err(candidate.refuse(Reason::LinkFailed, fault::of_linking(&error), &chain(&error))),
        // Linking panicked, which the component may have caused, or the process ends.
        Err(error) => Err(candidate.refuse(Reason::LinkFailed, Fault::Release, &chain(&error))),
    }
}

async fn check(candidate: &Candidate<'_>, sandbox: &Arc<Sandbox>, release: &Release) -> Result<(), Refusal> {
    let problems = try_check_config(sandbox, release, sandbox.config()).await.map_err(|failed| {
        let must = "it must answer for every text, with a list of problems";
        candidate.unanswered(Reason::CheckConfigFailed, "check-config", &failed, must)
    })?;
    let (fatal, warnings): (Vec<_>, Vec<_>) = problems.iter().partition(|problem| problem.severity == Severity::Fatal);
    for problem in warnings {
        tracing::warn!(provider.name = sandbox.name(), "cloud-config: {}", shown(problem));
    }
    if fatal.is_empty() {
        return Ok(());
    }
    let shown: Vec<_> = fatal.iter().take(PROBLEMS_SHOWN_MAX).map(|problem| shown(problem)).collect();
    let text = format!("it refuses the cloud-config: {}; mend the cloud-config", shown.join("; "));
    Err(candidate.refuse(Reason::ConfigRefused, Fault::Operator, &text))
}

fn shown(problem: &Problem) -> String {
    let Problem { severity: _, line, key, message } = problem;
    let line = line.map(|line| format!("line {line}, ")).unwrap_or_default();
    let key = if key.is_empty() { String::new() } else { format!("key {key}: ") };
    format!("{line}{key}{message}")
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
