//! Import `events`: Kubernetes Events about the object of the call, or about the cluster if the
//! call has no object.

use skysail_provider::{EventKind, Limit, LimitHit, ProviderEvent, text::one_line};

use crate::{
    bindings::skysail::provider::events::{Host, Kind},
    limits::{EVENT_MESSAGE_BYTES_MAX, EVENT_REASON_BYTES_MAX},
    store::CallState,
};

/// The reason if the guest's reason has no valid character.
const REASON_DEFAULT: &str = "ProviderEvent";

impl Host for CallState {
    fn emit(&mut self, kind: Kind, reason: String, message: String) -> wasmtime::Result<()> {
        self.fuel_charge.bytes((reason.len() + message.len()) as u64);
        self.events_asked += 1;
        let max = self.sandbox.limits().events;
        if self.events_asked > max {
            self.hit(LimitHit { limit: Limit::Events, used: self.events_asked, max });
            return Ok(());
        }
        let Some(sink) = &self.call.events else { return Ok(()) };
        let kind = match kind {
            Kind::Normal => EventKind::Normal,
            Kind::Warning => EventKind::Warning,
        };
        sink.emit(ProviderEvent {
            object: self.call.object.clone(),
            kind,
            reason: camel_case(&reason),
            message: one_line(&message, EVENT_MESSAGE_BYTES_MAX),
        });
        self.events_published += 1;
        Ok(())
    }
}

/// A reason that the API accepts: letters and digits, at most 128 bytes.
fn camel_case(reason: &str) -> String {
    let kept: String = reason.chars().filter(char::is_ascii_alphanumeric).take(EVENT_REASON_BYTES_MAX).collect();
    if kept.is_empty() { REASON_DEFAULT.to_owned() } else { kept }
}

#[cfg(test)]
mod tests {
    use super::camel_case;

    #[test]
    fn a_reason_keeps_letters_and_digits_only() {
        assert_eq!(camel_case("Quota exceeded!\n"), "Quotaexceeded");
        assert_eq!(camel_case("…"), "ProviderEvent");
        assert_eq!(camel_case(&"a".repeat(200)).len(), 128);
    }
}
