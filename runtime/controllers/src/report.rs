//! The one place where outcomes become a log line, a Kubernetes Event and a metric.
//!
//! A failure is logged here once, with its causes; no other module logs it. The lines of `skysail
//! dev` also come from here, as [`Activity`].

mod repeats;

use std::{sync::Arc, time::Duration};

use skysail_provider::{Code, EventKind, EventSink, ObjectReference, ProviderEvent};
use tokio::sync::broadcast;

use self::repeats::Repeats;
use crate::{
    convert::shown,
    error::{Error, chain},
    events::{Begun, Events, Notice},
    held::DryRuns,
    metrics::{ControllerMetrics, OutcomeLabels},
    names::{self, reasons},
    progress,
};

/// A slow reader misses lines; it does not delay a controller.
const ACTIVITY_MAX: usize = 1024;

/// Logs a line about an object, with the same field names as the host's log lines.
macro_rules! log {
    ($level:expr, $actor:expr, $object:expr, $($rest:tt)*) => {
        tracing::event!(
            $level,
            controller.name = $actor.controller,
            provider.name = $actor.provider,
            object.kind = $object.kind,
            object.namespace = $object.namespace,
            object.name = $object.name,
            $($rest)*
        )
    };
}

/// One action of a controller on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Name of the controller, as in its Events.
    pub controller: &'static str,
    /// The operator's name for the provider; empty without a provider.
    pub provider: String,
    /// `Service` or `Node`.
    pub kind: &'static str,
    /// `namespace/name`, or the name alone.
    pub object: String,
    /// One line.
    pub text: String,
    /// Whether the action failed.
    pub failed: bool,
}

/// Reports outcomes.
#[derive(Clone)]
pub(crate) struct Reporter {
    events: Events,
    activity: broadcast::Sender<Activity>,
    repeats: Arc<Repeats>,
    dry_runs: Option<DryRuns>,
    pub(crate) metrics: ControllerMetrics,
}

/// A controller that acts on behalf of a provider.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) controller: &'static str,
    pub(crate) provider: String,
}

impl Reporter {
    pub(crate) fn new(events: Events, metrics: ControllerMetrics) -> Self {
        Self {
            events,
            activity: broadcast::Sender::new(ACTIVITY_MAX),
            repeats: Arc::default(),
            dry_runs: None,
            metrics,
        }
    }

    /// Records the failures of a dry run.
    pub(crate) fn recording(self, dry_runs: DryRuns) -> Self {
        Self { dry_runs: Some(dry_runs), ..self }
    }

    pub(crate) fn activity(&self) -> broadcast::Receiver<Activity> {
        self.activity.subscribe()
    }

    /// Emits an Event about the object. Returns false if the queue of Events is full.
    pub(crate) fn event(
        &self,
        actor: &Actor,
        object: &ObjectReference,
        (kind, reason): (EventKind, &'static str),
        message: impl Into<String>,
    ) -> bool {
        let notice = self.notice(actor, object, (kind, reason), message.into());
        self.events.emit(notice)
    }

    /// Emits an Event about the beginning of an operation. The caller reports the end through the
    /// returned value.
    pub(crate) fn begins(&self, actor: &Actor, object: &ObjectReference, reason: &'static str, message: &str) -> Begun {
        let notice = self.notice(actor, object, (EventKind::Normal, reason), message.to_owned());
        self.events.emit_beginning(notice)
    }

    fn notice(
        &self,
        actor: &Actor,
        object: &ObjectReference,
        (kind, reason): (EventKind, &'static str),
        message: String,
    ) -> Notice {
        self.say(actor, object, format!("{reason}: {message}"), kind == EventKind::Warning);
        Notice { source: Arc::from(actor.controller), object: object.clone(), kind, reason: reason.to_owned(), message }
    }

    /// A step that succeeded and has no Event.
    pub(crate) fn done(&self, actor: &Actor, object: &ObjectReference, text: impl Into<String>) {
        self.say(actor, object, text.into(), false);
    }

    /// Reports the end of a reconcile, with the time until the next try if it is known. A
    /// retry-after and a conflict have their own outcomes and are no failures. Failures of nodes
    /// with the same cause are logged once.
    ///
    /// The Event of a failure omits that time: the time grows with each failure, and Events with
    /// different texts are not counted as one series.
    pub(crate) fn reconciled(
        &self,
        actor: &Actor,
        object: &ObjectReference,
        result: Result<(), &Error>,
        next_try: Option<Duration>,
    ) {
        let outcome = result.map_or_else(Error::category, |()| "Ok");
        let provider = actor.provider.clone();
        self.metrics.reconciles.get_or_create(&OutcomeLabels { controller: actor.controller, provider, outcome }).inc();
        let Err(error) = result else { return };
        // A log field, not the message: the text may contain a guest's words, which must not look
        // like the host's.
        let text = chain(error);
        if let Some(dry_runs) = &self.dry_runs {
            dry_runs.failed(&actor.provider, object, text.clone());
        }
        let expected = is_expected(error);
        if !expected {
            progress::fail(outcome, &text);
        }
        let logged = match object.kind {
            "Node" => self.repeats.log((actor.controller, actor.provider.clone(), outcome), &text),
            _ => Some(0),
        };
        let next_try = next_try.map(|after| format!("{after:?}"));
        let then = next_try.as_ref().map_or_else(String::new, |after| format!("; next try in {after}"));
        match (logged, expected) {
            (Some(omitted), true) => {
                log!(
                    tracing::Level::INFO,
                    actor,
                    object,
                    controller.outcome = outcome,
                    controller.next_try = next_try.as_deref(),
                    controller.omitted = omitted,
                    reason = text,
                    "waits"
                );
            }
            (Some(omitted), false) => {
                log!(
                    tracing::Level::WARN,
                    actor,
                    object,
                    controller.outcome = outcome,
                    controller.next_try = next_try.as_deref(),
                    controller.omitted = omitted,
                    reason = text,
                    "failed"
                );
            }
            (None, _) => {}
        }
        self.say(actor, object, format!("{}: {text}{then}", if expected { "waits" } else { "failed" }), !expected);
    }

    /// The sink for a provider's own Events. They use the same queue and the same limits. An Event
    /// of a call without an object is about the cluster, because the API accepts no Event without
    /// an object.
    pub(crate) fn sink(&self, provider: &str) -> Arc<dyn EventSink> {
        Arc::new(Sink { events: self.events.clone(), source: Arc::from(format!("skysail-provider-{provider}")) })
    }

    fn say(&self, actor: &Actor, object: &ObjectReference, text: String, failed: bool) {
        log!(tracing::Level::DEBUG, actor, object, reason = text, "done");
        if self.activity.receiver_count() == 0 {
            return;
        }
        let line = Activity {
            controller: actor.controller,
            provider: actor.provider.clone(),
            kind: object.kind,
            object: shown(object),
            text,
            failed,
        };
        // The only possible error: the last reader left after the check.
        drop(self.activity.send(line));
    }
}

/// Whether the error is no fault of the object: the provider asked to wait, the watch will deliver
/// a newer object, or this process is not the leader any more.
pub(crate) fn is_expected(error: &Error) -> bool {
    error.is_conflict() || matches!(error.code(), Code::RetryAfter | Code::NotLeading)
}

/// The Namespace that represents the cluster; every cluster has it.
pub(crate) fn cluster() -> ObjectReference {
    let (namespace, name, uid) = (String::new(), names::SYSTEM_NAMESPACE.to_owned(), String::new());
    ObjectReference { kind: "Namespace", namespace, name, uid }
}

struct Sink {
    events: Events,
    source: Arc<str>,
}

impl EventSink for Sink {
    fn emit(&self, event: ProviderEvent) {
        let object = event.object.unwrap_or_else(cluster);
        let camel_case = event.reason.len() <= 128
            && event.reason.starts_with(|c: char| c.is_ascii_uppercase())
            && event.reason.chars().all(|c| c.is_ascii_alphanumeric());
        let reason = if camel_case { event.reason } else { reasons::PROVIDER_EVENT.to_owned() };
        self.events.emit(Notice {
            source: Arc::clone(&self.source),
            object,
            kind: event.kind,
            reason,
            message: event.message,
        });
    }
}

#[cfg(test)]
mod tests;
