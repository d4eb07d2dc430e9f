//! What the task of a slot has this crate do: load components, exchange the routing, and tell
//! people.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use skysail_slot::{Executor, Judge, Load, Loaded, Proposal, Release as _, Report, Routing};
use tokio::sync::watch;

use super::{Active, Living, SandboxError, ShadowStatus, Slot, SlotMetrics, SlotStatus, load::Loader};

/// See the module.
pub(super) struct Hosted {
    routing: Arc<ArcSwap<Routing<Active>>>,
    status: Arc<watch::Sender<SlotStatus>>,
    loader: Loader,
    metrics: SlotMetrics,
}

impl Hosted {
    pub(super) fn new(slot: &Slot, living: &Arc<Living>) -> Arc<Self> {
        let Slot { name, services, routing, status, memory, inbox, .. } = slot;
        services.metrics.keep(name);
        let loader = Loader {
            name: Arc::clone(name),
            services: services.clone(),
            memory: Arc::clone(memory),
            living: Arc::clone(living),
            events: inbox.downgrade(),
        };
        let (routing, status) = (Arc::clone(routing), Arc::clone(status));
        Arc::new(Self { routing, status, loader, metrics: services.metrics.clone() })
    }

    fn count(&self, report: &Report<Active>) {
        let (metrics, name) = (&self.metrics, &*self.loader.name);
        match report {
            Report::Active(_) => metrics.swapped(name),
            Report::Canary(..) | Report::Passed(_) => {}
            Report::RolledBack(refusal) => {
                metrics.rolled_back(name, refusal.code);
                metrics.refused(name, refusal.stage, refusal.code);
            }
            Report::Refused(refusal) | Report::KeepsConfig(refusal) | Report::Stopped(refusal) => {
                metrics.refused(name, refusal.stage, refusal.code);
            }
            Report::Shadowed(report) => metrics.shadowed(name, report.asked, report.differing),
            Report::SourceFailed(failure) => metrics.source_failed(name, failure.code),
        }
    }
}

impl Executor for Hosted {
    type Release = Active;
    type Error = SandboxError;

    async fn load(&self, load: Load<Active>) -> Loaded<Active> {
        skysail_slot::load(&self.loader, load).await
    }

    async fn judge(&self, judge: Judge<Active>) -> Result<Box<Proposal<Active>>, SandboxError> {
        skysail_slot::judge(&self.loader, judge).await
    }

    fn route(&self, routing: Routing<Active>) {
        self.routing.store(Arc::new(routing));
    }

    fn keep_questions(&self, keeps: bool) {
        self.loader.memory.keeps(keeps);
    }

    fn report(&self, report: &Report<Active>) {
        self.count(report);
        log(&self.loader.name, report);
    }

    fn publish(&self, mut status: SlotStatus) {
        let known = self.status.borrow().active.as_ref().map(|active| (active.swap, active.since_ms));
        if let Some(active) = &mut status.active {
            active.since_ms = known.filter(|(swap, _)| *swap == active.swap).map_or_else(now_ms, |(_, since)| since);
        }
        let (metrics, name) = (&self.metrics, &self.loader.name);
        metrics.serving(name).set(i64::from(status.active.is_some()));
        metrics.source_failing(name).set(i64::from(status.source_failure.is_some()));
        metrics.draining(name).set(i64::try_from(status.draining).unwrap_or(i64::MAX));
        self.status.send_if_modified(|known| {
            let changed = *known != status;
            *known = status;
            changed
        });
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.metrics.release(&self.loader.name);
    }
}

fn log(name: &str, report: &Report<Active>) {
    macro_rules! line {
        ($level:ident, $refusal:ident, $text:literal) => {
            tracing::$level!(
                provider.name = %name,
                component.digest = $refusal.digest,
                stage = $refusal.stage.name(),
                code = $refusal.code,
                concat!($text, ": {}"),
                $refusal
            )
        };
    }
    match report {
        Report::Active(release) => {
            let interfaces = release.interfaces.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(",");
            let (version, digest) = (&release.info.version, release.digest());
            tracing::info!(
                provider.name = %name,
                provider.version = version,
                component.digest = digest,
                interfaces,
                "release active"
            );
        }
        Report::Canary(release, percent) => {
            let (version, digest) = (&release.info.version, release.digest());
            tracing::info!(
                provider.name = %name,
                provider.version = version,
                component.digest = digest,
                percent,
                "release serves a share of the objects"
            );
        }
        Report::Passed(release) => {
            tracing::info!(provider.name = %name, component.digest = release.digest(), "release passed probation");
        }
        Report::Refused(refusal) => line!(warn, refusal, "release refused"),
        Report::RolledBack(refusal) => line!(error, refusal, "release rolled back"),
        Report::KeepsConfig(refusal) => {
            line!(error, refusal, "the active release keeps its old cloud-config, all other settings are in force");
        }
        Report::Stopped(refusal) => {
            line!(error, refusal, "no release serves: the active release cannot be loaded under the new settings");
        }
        Report::Shadowed(ShadowStatus { digest, asked, unanswered, differing, differences }) => {
            tracing::info!(
                provider.name = %name,
                component.digest = digest,
                asked,
                unanswered,
                differing,
                "shadow: the answers of the new release were compared with those of the active release"
            );
            for difference in differences {
                tracing::warn!(provider.name = %name, component.digest = digest, "releases differ: {difference}");
            }
        }
        Report::SourceFailed(failure) => {
            tracing::warn!(provider.name = %name, code = failure.code, "the source has no component: {}", failure.reason);
        }
    }
}

fn now_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a date for people; nothing is decided by it")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
