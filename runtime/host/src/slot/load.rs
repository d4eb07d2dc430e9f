//! The way of a component through the stages before it serves, also under new settings. Nothing
//! here changes the slot: the results are events.

use std::sync::Arc;

use skysail_provider::{Info, Interface, text::with_causes};
use skysail_slot::{Component, ComponentLoader, Fault, JUDGEMENT_MAX, Release as _, is_same_identity};
use tokio::{sync::mpsc, time::timeout};

use super::{
    Active, CandidateStatus, Event, Living, QuestionLog, Refusal, RefusalReason, Settings, ShadowStatus, SlotOptions,
    SlotServices, Stage, shadow::shadow,
};
use crate::{
    Problem, Release, Sandbox, SandboxError, SandboxOptions, SandboxedProvider, Severity,
    admission::RefusalCode,
    call::Failed,
    egress::Origin,
    fault,
    identity::{try_check_config, try_describe, try_origins},
    jail::{CompileError, CompileLimits, Compiled},
};

/// Problems of `check-config` that are repeated in a reason.
const PROBLEMS_SHOWN_MAX: usize = 5;

/// What every load of a slot needs.
pub(super) struct Loader {
    pub(super) name: Arc<str>,
    pub(super) services: SlotServices,
    pub(super) memory: Arc<QuestionLog>,
    pub(super) living: Arc<Living>,
    /// Receives an event for each stage that is reached.
    pub(super) events: mpsc::WeakSender<Event>,
}

impl ComponentLoader for Loader {
    type Release = Active;
    type Error = SandboxError;

    async fn attempt(
        &self,
        number: u64,
        component: &Component,
        settings: &Settings,
        active: Option<&Active>,
    ) -> Result<Arc<Active>, Refusal> {
        Attempt::new(self, number, settings, active, component).run(Compared::No).await
    }

    async fn attempt_compared(
        &self,
        number: u64,
        component: &Component,
        settings: &Settings,
        active: Option<&Active>,
    ) -> (Result<Arc<Active>, Refusal>, Option<ShadowStatus>) {
        let mut attempt = Attempt::new(self, number, settings, active, component);
        let result = attempt.run(Compared::Yes).await;
        (result, attempt.shadow)
    }

    /// The machine code is linked again: the new settings may have another engine, and the cache of
    /// the release belongs to the old settings and credentials.
    async fn unasked(
        &self,
        number: u64,
        active: &Active,
        settings: &Settings,
        refusal: &Refusal,
    ) -> Option<Arc<Active>> {
        let Settings { options, sandbox } = settings;
        let Active { info, component, compiled, living, .. } = active;
        let attempt = Attempt::new(self, number, settings, Some(active), component);
        let release = Arc::new(attempt.link(compiled).await.ok()?);
        tracing::warn!(
            provider.name = %self.name,
            code = refusal.code,
            "the host could not run `check-config` of the active release; the new settings come into force without it: {refusal}"
        );
        let provider = SandboxedProvider::new(Arc::clone(sandbox), release, Arc::clone(info));
        Some(Active::new(
            provider,
            options,
            Arc::clone(info),
            (component.clone(), compiled.clone()),
            Arc::clone(living),
        ))
    }

    fn keeping_config(&self, settings: &Settings, in_force: &Settings) -> Result<Option<Settings>, SandboxError> {
        let config = &in_force.options.sandbox.config;
        if *config == settings.options.sandbox.config {
            return Ok(None);
        }
        let sandbox = SandboxOptions { config: config.clone(), ..settings.options.sandbox.clone() };
        Settings::new(&self.services, SlotOptions { sandbox, ..(*settings.options).clone() }).map(Some)
    }
}

/// Whether a release is asked beside the active one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    Yes,
    /// For new settings, which do not wait: `describe`, `check-config` and `origins` have
    /// [`JUDGEMENT_MAX`] together. The active release serves without an answer after that.
    No,
}

/// One component on its way under some settings.
struct Attempt<'a> {
    loader: &'a Loader,
    number: u64,
    settings: &'a Settings,
    active: Option<&'a Active>,
    component: &'a Component,
    candidate: CandidateStatus,
    shadow: Option<ShadowStatus>,
}

impl<'a> Attempt<'a> {
    fn new(
        loader: &'a Loader,
        number: u64,
        settings: &'a Settings,
        active: Option<&'a Active>,
        component: &'a Component,
    ) -> Self {
        let candidate = CandidateStatus::new(component, Stage::Offered);
        Self { loader, number, settings, active, component, candidate, shadow: None }
    }

    /// Takes the component through every stage up to the last before it serves.
    async fn run(&mut self, compared: Compared) -> Result<Arc<Active>, Refusal> {
        let Self { settings: Settings { options, sandbox }, active, .. } = *self;
        self.tell();
        let compiled = self.compile().await?;
        self.advance();
        let release = Arc::new(self.link(&compiled).await?);
        self.advance();
        let info = match compared {
            Compared::Yes => self.asked(&release).await?,
            Compared::No => match timeout(JUDGEMENT_MAX, self.asked(&release)).await {
                Ok(info) => info?,
                Err(_) => return Err(self.too_slow()),
            },
        };
        let provider = SandboxedProvider::new(Arc::clone(sandbox), release, Arc::clone(&info));
        if compared == Compared::Yes
            && let Some(active) = active.filter(|_| options.rollout.shadow.is_some() || options.rollout.plan.is_some())
        {
            let rollout = &options.rollout;
            let (report, judged) = shadow(&self.loader.memory, rollout, &active.provider, &provider).await;
            self.shadow = Some(report);
            judged.map_err(|(reason, text)| self.refuse_answer(reason, &text))?;
        }
        self.advance();
        let release = (self.component.clone(), compiled);
        Ok(Active::new(provider, options, info, release, Arc::clone(&self.loader.living)))
    }

    /// The release's answers about itself and its cloud-config.
    async fn asked(&mut self, release: &Release) -> Result<Arc<Info>, Refusal> {
        let info = Arc::new(self.described(release).await?);
        self.advance();
        self.check(release).await?;
        self.advance();
        Ok(info)
    }

    /// New settings are judged for longer than [`JUDGEMENT_MAX`].
    fn too_slow(&self) -> Refusal {
        let (reason, function) = match self.candidate.stage {
            Stage::Described => (RefusalReason::CheckConfigFailed, "check-config"),
            _ => (RefusalReason::DescribeFailed, "describe"),
        };
        let seconds = JUDGEMENT_MAX.as_secs();
        let text = format!(
            "identity.{function} of the release did not answer within {seconds} s, the time limit for checking new settings"
        );
        self.refuse(reason, fault::OF_A_SLOW_ANSWER, &text)
    }

    /// The next stage is reached.
    fn advance(&mut self) {
        if let Some(next) = self.candidate.stage.next() {
            let CandidateStatus { digest, stage, .. } = &self.candidate;
            let name = &self.loader.name;
            tracing::debug!(provider.name = %name, component.digest = digest, from = stage.name(), to = next.name(), "stage reached");
            self.candidate.stage = next;
            self.tell();
        }
    }

    /// For people: where the slot has more to do than it can, they see a later stage only.
    fn tell(&self) {
        if let Some(events) = self.loader.events.upgrade() {
            drop(events.try_send(Event::Reached { number: self.number, candidate: self.candidate.clone() }));
        }
    }

    /// The reason of the refusal is an answer of the release.
    fn refuse_answer(&self, reason: RefusalReason, text: &str) -> Refusal {
        self.refuse(reason, fault::of_answer(reason), text)
    }

    fn refuse(&self, reason: RefusalReason, fault: Fault, text: &str) -> Refusal {
        let CandidateStatus { digest, origin, stage } = self.candidate.clone();
        let reason_text = format!("{origin}: {text}");
        let (code, lasting) = (reason.category(), fault.is_lasting());
        Refusal { digest, origin, stage, code, reason: reason_text, lasting, retried: false }
    }

    /// A function of `identity` did not answer; `must` says what the release has to do.
    fn unanswered(
        &self,
        reason: RefusalReason,
        function: &str,
        Failed { error, fault }: &Failed,
        must: &str,
    ) -> Refusal {
        let (code, fault) = (error.code.category(), fault::of_silence(*fault));
        let remedy = if fault.is_lasting() { must } else { "the release is not at fault; the manager tries it again" };
        self.refuse(reason, fault, &format!("its identity.{function} failed ({code}: {error}); {remedy}"))
    }

    /// Whether this component serves already, under other settings.
    fn is_active(&self) -> bool {
        self.active.is_some_and(|active| active.digest() == &*self.component.digest)
    }

    /// Reaches `Verified` on the way: the jail judges and compiles in one run.
    async fn compile(&mut self) -> Result<Compiled, Refusal> {
        let (loader, Component { offer, hash, digest }) = (self.loader, self.component);
        let sandbox = &self.settings.sandbox;
        let (engine, limits) = (sandbox.wasmtime(), CompileLimits::from(sandbox.limits()));
        if let Some(active) = self.active
            && self.is_active()
        {
            // A release that serves is not compiled again, also under lower limits: the jail may be
            // out of order just now, and the rights that the settings take away must not wait for a
            // compilation.
            self.advance();
            return Ok(active.compiled.clone());
        }
        let component = (offer.bytes.clone(), *hash);
        let compiled = loader.services.compiler.compile(engine, component, limits, || self.advance()).await;
        if let Ok(Compiled { cost: Some(cost), cached: false, .. }) = &compiled {
            tracing::info!(
                provider.name = %loader.name,
                component.digest = %digest,
                cpu_ms = cost.cpu.as_millis(),
                memory_bytes = cost.memory_bytes,
                "component compiled"
            );
        }
        compiled.map_err(|error| {
            let reason = match &error {
                CompileError::NotAdmitted { refusals } => RefusalReason::Admission(
                    refusals.first().map_or(RefusalCode::Malformed, |refusal| refusal.code).category(),
                ),
                CompileError::Limit { .. } if error.is_of_the_component() => RefusalReason::CompileLimit,
                CompileError::Refused { .. } | CompileError::TooDeep | CompileError::Crashed { .. } => {
                    RefusalReason::CompileFailed
                }
                CompileError::Limit { .. } | CompileError::Jail { .. } | CompileError::OtherBuild { .. } => {
                    RefusalReason::CompileUnavailable
                }
            };
            self.refuse(reason, fault::of_compilation(&error), &with_causes(&error))
        })
    }

    async fn link(&self, compiled: &Compiled) -> Result<Release, Refusal> {
        let (sandbox, digest) = (Arc::clone(&self.settings.sandbox), Arc::clone(&self.component.digest));
        let component = Arc::clone(&compiled.component);
        // Copies the machine code and links hundreds of functions: milliseconds.
        let linked = tokio::task::spawn_blocking(move || Release::new(&sandbox, &component, &digest)).await;
        match linked {
            Ok(Ok(release)) => Ok(release),
            Ok(Err(error)) => {
                Err(self.refuse(RefusalReason::LinkFailed, fault::of_linking(&error), &with_causes(&error)))
            }
            // Linking panicked, or the process ends.
            Err(error) => Err(self.refuse(RefusalReason::LinkFailed, fault::OF_A_PANIC, &with_causes(&error))),
        }
    }

    async fn described(&self, release: &Release) -> Result<Info, Refusal> {
        let Settings { options, sandbox } = self.settings;
        let info = try_describe(sandbox, release).await.map_err(|failed| {
            let must =
                "identity.describe must return the same answer each time and must send no HTTP request; ask the provider's author";
            self.unanswered(RefusalReason::DescribeFailed, "describe", &failed, must)
        })?;
        let interfaces = options.used(release);
        let has_machines = interfaces.contains(&Interface::Instances);
        if has_machines && info.provider_id_schemes.is_empty() && !options.claims_prefixes {
            let text = "it exports instances and describes no provider-id-schemes; name the scheme of its provider IDs in identity.describe; for provider IDs \
                        without a scheme, list their prefixes in spec.providerIdPrefixes of the provider";
            return Err(self.refuse_answer(RefusalReason::NoProviderIdScheme, text));
        }
        if let Some(active) = self.active {
            self.compare(active, &info, &interfaces)?;
        }
        Ok(info)
    }

    /// Whether the release may follow the active one.
    fn compare(&self, active: &Active, info: &Info, interfaces: &[Interface]) -> Result<(), Refusal> {
        let options = &self.settings.options;
        // Under these settings, which may use other interfaces than those in force.
        let had = options.used(active.provider.release());
        let lost: Vec<_> = had.iter().filter(|had| !interfaces.contains(had)).map(|lost| lost.name()).collect();
        if !lost.is_empty() && !options.allow_interface_loss {
            let text = format!(
                "it lacks {}, which the release that serves (version {}) has: what was made through it would be left alone; export it, or set \
                 allowInterfaceLoss for this provider",
                lost.join(", "),
                active.info.version
            );
            return Err(self.refuse_answer(RefusalReason::InterfaceLost, &text));
        }
        if !is_same_identity(&active.info, info) && !options.allow_identity_change {
            let text = format!(
                "it calls itself {:?} with provider-ID schemes {:?}, and the release that serves is {:?} with {:?}: nodes and load balancers \
                 would no longer be known as this provider's; keep name and schemes, or set allowIdentityChange for this provider",
                info.name, info.provider_id_schemes, active.info.name, active.info.provider_id_schemes
            );
            return Err(self.refuse_answer(RefusalReason::IdentityChanged, &text));
        }
        Ok(())
    }

    async fn check(&self, release: &Release) -> Result<(), Refusal> {
        let sandbox = &self.settings.sandbox;
        let problems = try_check_config(sandbox, release, sandbox.config()).await.map_err(|failed| {
            let must = "identity.check-config must return a list of problems for every text; ask the provider's author";
            self.unanswered(RefusalReason::CheckConfigFailed, "check-config", &failed, must)
        })?;
        let (fatal, warnings): (Vec<_>, Vec<_>) =
            problems.iter().partition(|problem| problem.severity == Severity::Fatal);
        for problem in warnings {
            tracing::warn!(provider.name = sandbox.name(), "cloud-config: {}", shown(problem));
        }
        if fatal.is_empty() {
            return self.check_origins(release).await;
        }
        let shown: Vec<_> = fatal.iter().take(PROBLEMS_SHOWN_MAX).map(|problem| shown(problem)).collect();
        let text = format!("it refuses the cloud-config: {}; correct the cloud-config", shown.join("; "));
        Err(self.refuse_answer(RefusalReason::ConfigRefused, &text))
    }

    async fn check_origins(&self, release: &Release) -> Result<(), Refusal> {
        let Settings { options, sandbox } = self.settings;
        let origins = try_origins(sandbox, release, sandbox.config()).await.map_err(|failed| {
            let must = "identity.origins must return at most 64 origins for every accepted cloud-config and must send no HTTP request; ask the provider's author";
            self.unanswered(RefusalReason::OriginsFailed, "origins", &failed, must)
        })?;
        if options.allow_unmet_egress {
            return Ok(());
        }
        let Some(unmet) = unmet(sandbox, &origins) else { return Ok(()) };
        let serves_with_it =
            |active: &Active| self.is_active() && active.provider.sandbox().config() == sandbox.config();
        if !self.active.is_some_and(serves_with_it) {
            return Err(self.refuse_answer(RefusalReason::EgressNotAllowed, &unmet));
        }
        // Egress rules that the operator removes do not stop the active release.
        tracing::warn!(
            provider.name = %self.loader.name,
            component.digest = %self.component.digest,
            "no egress rule allows an origin that the active release requires; the release continues to serve, and the next start refuses it: {unmet}"
        );
        Ok(())
    }
}

/// Which of the origins that the release requires no rule allows, and what to do about it.
fn unmet(sandbox: &Sandbox, origins: &[Origin]) -> Option<String> {
    let refused = |origin: &Origin| match sandbox.http() {
        Some(http) => http.policy().judge_origin(origin).err().map(|refusal| refusal.to_string()),
        None => Some(format!("no rule allows origin {origin}")),
    };
    let refused: Vec<_> = origins.iter().filter_map(refused).take(PROBLEMS_SHOWN_MAX).collect();
    (!refused.is_empty()).then(|| {
        format!(
            "under this cloud-config it requires what the operator has not allowed: {}; add egress rules, correct the cloud-config, or set \
             allowUnmetEgress for this provider",
            refused.join("; ")
        )
    })
}

fn shown(problem: &Problem) -> String {
    let Problem { severity: _, line, key, message } = problem;
    let line = line.map(|line| format!("line {line}, ")).unwrap_or_default();
    let key = if key.is_empty() { String::new() } else { format!("key {key}: ") };
    format!("{line}{key}{message}")
}
