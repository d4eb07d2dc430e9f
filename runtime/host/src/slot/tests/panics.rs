//! A panic of a slot's task is a bug in Skysail, and must not be silent.

use bytes::Bytes;
use tokio::time;
use tracing::{
    Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

use super::{Offered, PATIENCE, Slot, offer, options, services};

/// A collector of log lines that has a bug, so that whatever logs a warning panics.
struct FailingCollector;

impl Subscriber for FailingCollector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &tracing::Event<'_>) {
        panic!("the collector's bug");
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[tokio::test]
async fn a_panic_of_the_slot_s_task_is_reported() {
    let services = services();
    let panics = services.panics.clone();
    let slot = Slot::new(services, options("")).unwrap();
    {
        let _collector = tracing::subscriber::set_default(FailingCollector);
        // The slot's task logs the refusal.
        assert_eq!(offer(&slot, &Bytes::from_static(b"not wasm")).await, Ok(Offered::Overtaken));
    }
    time::timeout(PATIENCE, panics.reported()).await.unwrap();
}
