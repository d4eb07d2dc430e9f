//! The one place where outcomes become a log line, a Kubernetes Event and a metric.
//!
//! A failure is logged here once, with its whole chain; nobody else logs it. What a person may see
//! live (`skysail dev`) leaves here too, as [`Activity`].

mod repeats;

use std::{sync::Arc, time::Duration};

use skysail_provider::{Code, EventKind, EventSink, ObjectReference, ProviderEvent};
use tokio::sync::broadcast;

use self::repeats::Repeats;
use crate::{
    error::{Error, chain},
    events::{Begun, Events, Notice},
    metrics::{ControllerMetrics, OutcomeLabels},
    names::{self, reasons},
};

/// A slow reader misses lines rather than holding up a controller.
const ACTIVITY_MAX: usize = 1024;

/// A line about an object; who speaks and about what is called as in the host's lines.
macro_rules! log {
    ($level:expr, $voice:expr, $object:expr, $($rest:tt)*) => {
        tracing::event!(
            $level,
            controller.name = $voice.controller,
            provider.name = $voice.provider,
            object.kind = $object.kind,
            object.namespace = $object.namespace,
            object.name = $object.name,
            $($rest)*
        )
    };
}

/// Something that was done to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Name of the controller, as in its Events.
    pub controller: &'static str,
    /// The operator's name for the provider; empty where none acts.
    pub provider: String,
    /// `Service` or `Node`.
    pub kind: &'static str,
    /// `namespace/name`, or the name alone.
    pub object: String,
    /// One line.
    pub text: String,
    /// Whether it is a failure.
    pub failed: bool,
}

/// Says what happened.
#[derive(Clone)]
pub(crate) struct Reporter {
    events: Events,
    activity: broadcast::Sender<Activity>,
    repeats: Arc<Repeats>,
    pub(crate) metrics: ControllerMetrics,
}

/// Who speaks: a controller on behalf of a provider.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    pub(crate) controller: &'static str,
    pub(crate) provider: String,
}

impl Reporter {
    pub(crate) fn new(events: Events, metrics: ControllerMetrics) -> Self {
        Self { events, activity: broadcast::Sender::new(ACTIVITY_MAX), repeats: Arc::default(), metrics }
    }

    pub(crate) fn activity(&self) -> broadcast::Receiver<Activity> {
        self.activity.subscribe()
    }

    /// An Event on the object. Whether it will be written: not where too much waits.
    pub(crate) fn event(
        &self,
        voice: &Voice,
        object: &ObjectReference,
        (kind, reason): (EventKind, &'static str),
        message: impl Into<String>,
    ) -> bool {
        let notice = self.notice(voice, object, (kind, reason), message.into());
        self.events.tell(notice)
    }

    /// An Event on the object that says that something begins. The caller reports the end through
    /// the returned value.
    pub(crate) fn begins(&self, voice: &Voice, object: &ObjectReference, reason: &'static str, message: &str) -> Begun {
        let notice = self.notice(voice, object, (EventKind::Normal, reason), message.to_owned());
        self.events.tell_beginning(notice)
    }

    fn notice(
        &self,
        voice: &Voice,
        object: &ObjectReference,
        (kind, reason): (EventKind, &'static str),
        message: String,
    ) -> Notice {
        self.say(voice, object, format!("{reason}: {message}"), kind == EventKind::Warning);
        Notice { source: Arc::from(voice.controller), object: object.clone(), kind, reason: reason.to_owned(), message }
    }

    /// A step that succeeded and has no Event.
    pub(crate) fn done(&self, voice: &Voice, object: &ObjectReference, text: impl Into<String>) {
        self.say(voice, object, text.into(), false);
    }

    /// The end of a reconcile, with the time until the next try where that is known. A retry-after
    /// and a conflict are outcomes of their own, not failures: nothing is wrong. Failures of nodes
    /// that share a cause are logged once.
    ///
    /// The Event of a failure has no such time: the time grows with each failure, and Events with
    /// different texts are not counted as one.
    pub(crate) fn reconciled(
        &self,
        voice: &Voice,
        object: &ObjectReference,
        result: Result<(), &Error>,
        next_try: Option<Duration>,
    ) {
        let outcome = result.map_or_else(Error::category, |()| "Ok");
        let provider = voice.provider.clone();
        self.metrics.reconciles.get_or_create(&OutcomeLabels { controller: voice.controller, provider, outcome }).inc();
        let Err(error) = result else { return };
        // A field and not the message: it may hold words of a guest, which must not read as the
        // host's.
        let text = chain(error);
        let logged = match object.kind {
            "Node" => self.repeats.log((voice.controller, voice.provider.clone(), outcome), &text),
            _ => Some(0),
        };
        let next_try = next_try.map(|after| format!("{after:?}"));
        let then = next_try.as_ref().map_or_else(String::new, |after| format!("; next try in {after}"));
        let expected = is_expected(error);
        match (logged, expected) {
            (Some(omitted), true) => {
                log!(
                    tracing::Level::INFO,
                    voice,
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
                    voice,
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
        self.say(voice, object, format!("{}: {text}{then}", if expected { "waits" } else { "failed" }), !expected);
    }

    /// Where a provider's own Events go: through the same queue, so within the same bounds. Those
    /// of a call without an object are about the cluster: the API takes no Event without an object,
    /// and the provider itself has none.
    pub(crate) fn sink(&self, provider: &str) -> Arc<dyn EventSink> {
        Arc::new(Sink { events: self.events.clone(), source: Arc::from(format!("skysail-provider-{provider}")) })
    }

    fn say(&self, voice: &Voice, object: &ObjectReference, text: String, failed: bool) {
        log!(tracing::Level::DEBUG, voice, object, reason = text, "done");
        if self.activity.receiver_count() == 0 {
            return;
        }
        let line = Activity {
            controller: voice.controller,
            provider: voice.provider.clone(),
            kind: object.kind,
            object: shown(object),
            text,
            failed,
        };
        // The only error is that the last reader left since the check.
        drop(self.activity.send(line));
    }
}

/// Nothing is wrong with the object: the provider asked for time, a newer object is on its way, or
/// this process has no say any more.
pub(crate) fn is_expected(error: &Error) -> bool {
    error.is_conflict() || matches!(error.code(), Code::RetryAfter | Code::NotLeading)
}

fn shown(object: &ObjectReference) -> String {
    match object.namespace.as_str() {
        "" => object.name.clone(),
        namespace => format!("{namespace}/{}", object.name),
    }
}

/// The namespace that every cluster has stands for it.
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
        self.events.tell(Notice {
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
