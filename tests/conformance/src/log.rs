//! The log lines of the controllers.

use std::any::Any;

use serde_json::Value;
use skysail_test_support::log::Log as Text;
use tracing_subscriber::{filter::LevelFilter, fmt, util::SubscriberInitExt as _};

/// The log lines of this thread, from `INFO` on. Dropping this value ends the collection. A test
/// runs on one thread.
pub struct Log {
    text: Text,
    _collection: Box<dyn Any>,
}

impl Log {
    /// Begins to collect.
    #[must_use]
    pub fn collect() -> Self {
        let text = Text::default();
        let lines = text.clone();
        let subscriber = fmt().json().flatten_event(true).with_writer(move || lines.clone());
        let guard = subscriber.with_max_level(LevelFilter::INFO).finish().set_default();
        Self { text, _collection: Box::new(guard) }
    }

    /// The failures that the controllers logged since the last call. The keys are the fields.
    #[must_use]
    pub fn failures(&self) -> Vec<Value> {
        let text = self.text.take();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"] == "failed").collect()
    }
}
