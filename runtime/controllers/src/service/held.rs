//! Reports deletions that the operator's budget of deletions holds back.

use skysail_provider::EventKind;

use super::apply::Subject;
use crate::{
    context::Context,
    error::{Error, chain},
    names::{ALLOW_DELETION_ANNOTATION, reasons},
    watch::ObjectKey,
};

/// Records whether a deletion for the Service is held back, and emits the Event about it.
pub(super) fn follow(subject: &Subject<'_>, error: Option<&Error>) {
    let Subject { context, lane, key, actor, .. } = subject;
    let held = error.filter(|error| error.holds_deletion());
    if let Some(error) = held {
        let ObjectKey { namespace, name } = key;
        let text = format!(
            "{}. To let only this Service through: kubectl annotate service {name} --namespace {namespace} {ALLOW_DELETION_ANNOTATION}=true",
            chain(error)
        );
        context.reporter.event(actor, &super::reference(subject), (EventKind::Warning, reasons::DELETION_HELD), text);
    }
    note(context, key, held.map(|_| lane.name.as_str()));
}

/// Forgets a Service that is gone.
pub(crate) fn forget(context: &Context, key: &ObjectKey) {
    note(context, key, None);
}

/// The Service may have been another provider's before.
fn note(context: &Context, key: &ObjectKey, waits_for: Option<&str>) {
    if context.held_deletions.follow(key, waits_for) {
        context.lanes.all().iter().for_each(|lane| context.count_held_deletions(lane));
    }
}
