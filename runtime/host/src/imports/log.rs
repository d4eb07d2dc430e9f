//! Import `log`, and the lines of standard output and standard error: into tracing, within a budget
//! of lines and bytes.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use skysail_provider::{Limit, LimitHit, text::one_line};

use crate::{
    Sandbox,
    bindings::skysail::provider::log::{Host, Level},
    limits::{LOG_FIELDS_MAX, LOG_LINE_BYTES_MAX},
    recording::LogLevel,
    store::CallState,
};

/// The tracing target of a guest's log lines, for filters.
const TARGET: &str = "skysail::guest";

/// The standard stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The field that marks a line as the text of a panic (`wit/v0.1.0/host.wit`).
const PANIC_FIELD: &str = "panic";
/// Longest text that the error of a trap repeats, in bytes: with the names of functions it has to
/// fit into an Event.
const LAST_OUTPUT_BYTES_MAX: usize = 400;
/// Lines of standard error that the error of a trap repeats: runtimes say in one to three lines why
/// they abort.
const LAST_LINES_MAX: usize = 3;

/// What a guest said last, for the error of a trap. One line, at most [`LAST_OUTPUT_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastOutput {
    /// A line that is marked as a panic's.
    Panic(String),
    /// The last lines on standard error.
    Stderr(String),
}

/// The log of one call. Cloning shares it: the guest's streams write into it too.
#[derive(Clone, Debug)]
pub(crate) struct CallLog {
    lines: Arc<Mutex<Lines>>,
}

#[derive(Debug)]
struct Lines {
    provider: Arc<str>,
    function: &'static str,
    lines_max: u64,
    bytes_max: u64,
    lines_asked: u64,
    bytes_asked: u64,
    kept: u64,
    kept_bytes: u64,
    /// Without their end so far; at most [`LOG_LINE_BYTES_MAX`] each.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Text of the last panic.
    panic: Option<String>,
    /// The last lines on standard error, each at most [`LAST_OUTPUT_BYTES_MAX`].
    last_lines: VecDeque<String>,
}

/// The totals of a call's log.
pub(crate) struct Finished {
    pub(crate) kept: u64,
    pub(crate) dropped: u64,
    pub(crate) limits_hit: Vec<LimitHit>,
}

impl CallLog {
    pub(crate) fn new(sandbox: &Sandbox, function: &'static str) -> Self {
        let limits = sandbox.limits();
        let lines = Lines::new(Arc::clone(sandbox.shared_name()), function, (limits.log_lines, limits.log_bytes));
        Self { lines: Arc::new(Mutex::new(lines)) }
    }

    /// Takes bytes of standard output or standard error; each line of them becomes a line of the
    /// log.
    pub(crate) fn write(&self, stream: Stream, bytes: &[u8]) {
        self.lines().write(stream, bytes);
    }

    /// What the guest wrote about the reason of its end, within the limit of lines or beyond it.
    pub(crate) fn last_output(&self) -> Option<LastOutput> {
        self.lines().last_output()
    }

    /// Ends the log: a line without an end is written as it is.
    pub(crate) fn finish(&self) -> Finished {
        let mut lines = self.lines();
        for stream in [Stream::Stdout, Stream::Stderr] {
            lines.end_line(stream);
        }
        let mut limits_hit = Vec::new();
        if lines.lines_asked > lines.lines_max {
            limits_hit.push(LimitHit { limit: Limit::LogLines, used: lines.lines_asked, max: lines.lines_max });
        }
        if lines.bytes_asked > lines.bytes_max {
            limits_hit.push(LimitHit { limit: Limit::LogBytes, used: lines.bytes_asked, max: lines.bytes_max });
        }
        Finished { kept: lines.kept, dropped: lines.lines_asked - lines.kept, limits_hit }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// An empty log with these limits of lines and bytes.
    fn new(provider: Arc<str>, function: &'static str, (lines_max, bytes_max): (u64, u64)) -> Self {
        Self {
            provider,
            function,
            lines_max,
            bytes_max,
            lines_asked: 0,
            bytes_asked: 0,
            kept: 0,
            kept_bytes: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            panic: None,
            last_lines: VecDeque::new(),
        }
    }

    /// Writes a line where the budget has room for it: `bytes` is what the guest gave, before it
    /// was cut.
    fn line(&mut self, level: Level, bytes: usize, text: impl FnOnce() -> (String, String)) {
        self.lines_asked += 1;
        self.bytes_asked = self.bytes_asked.saturating_add(bytes as u64);
        // A long line is truncated; only the kept part counts.
        let cost = bytes.min(LOG_LINE_BYTES_MAX) as u64;
        if self.kept >= self.lines_max || self.kept_bytes + cost > self.bytes_max {
            return;
        }
        self.kept += 1;
        self.kept_bytes += cost;
        let (message, fields) = text();
        self.emit(level, &message, &fields);
    }

    fn emit(&self, level: Level, message: &str, fields: &str) {
        macro_rules! event {
            ($level:expr) => {
                tracing::event!(
                    target: TARGET,
                    $level,
                    provider.name = &*self.provider,
                    provider.operation = self.function,
                    // A field and not the line's message: fields are quoted in the text format, so
                    // that no words of a guest pass for the fields beside them.
                    guest.message = message,
                    guest.fields = fields,
                    "guest"
                )
            };
        }
        match level {
            Level::Trace => event!(tracing::Level::TRACE),
            Level::Debug => event!(tracing::Level::DEBUG),
            Level::Info => event!(tracing::Level::INFO),
            Level::Warn => event!(tracing::Level::WARN),
            Level::Error => event!(tracing::Level::ERROR),
        }
    }

    fn last_output(&mut self) -> Option<LastOutput> {
        self.end_line(Stream::Stderr);
        if let Some(panic) = &self.panic {
            return Some(LastOutput::Panic(panic.clone()));
        }
        let lines = Vec::from_iter(self.last_lines.iter().map(String::as_str)).join(" ");
        (!lines.is_empty()).then(|| LastOutput::Stderr(one_line(&lines, LAST_OUTPUT_BYTES_MAX)))
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let partial = self.partial(stream);
            let room = LOG_LINE_BYTES_MAX.saturating_sub(partial.len());
            partial.extend(text.iter().take(room));
            self.bytes_asked = self.bytes_asked.saturating_add(text.len().saturating_sub(room) as u64);
            if ended {
                self.end_line(stream);
            }
        }
    }

    fn end_line(&mut self, stream: Stream) {
        let line = std::mem::take(self.partial(stream));
        if line.is_empty() {
            return;
        }
        if stream == Stream::Stderr {
            self.last_lines.push_back(one_line(&String::from_utf8_lossy(&line), LAST_OUTPUT_BYTES_MAX));
            if self.last_lines.len() > LAST_LINES_MAX {
                self.last_lines.pop_front();
            }
        }
        let (level, name) = match stream {
            Stream::Stdout => (Level::Info, "stdout"),
            Stream::Stderr => (Level::Warn, "stderr"),
        };
        self.line(level, line.len(), || {
            (one_line(&String::from_utf8_lossy(&line), LOG_LINE_BYTES_MAX), format!("stream={name}"))
        });
    }

    const fn partial(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Whether the host's log keeps lines of this level.
fn keeps(level: LogLevel) -> bool {
    match level {
        LogLevel::Trace => tracing::enabled!(target: TARGET, tracing::Level::TRACE),
        LogLevel::Debug => tracing::enabled!(target: TARGET, tracing::Level::DEBUG),
        LogLevel::Info => tracing::enabled!(target: TARGET, tracing::Level::INFO),
        LogLevel::Warn => tracing::enabled!(target: TARGET, tracing::Level::WARN),
        LogLevel::Error => tracing::enabled!(target: TARGET, tracing::Level::ERROR),
        LogLevel::Off => true,
    }
}

/// The level from which on the host's log keeps lines.
pub(crate) fn log_level() -> LogLevel {
    let levels = [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];
    levels.into_iter().find(|level| keeps(*level)).unwrap_or(LogLevel::Off)
}

impl Host for CallState {
    fn enabled(&mut self, level: Level) -> wasmtime::Result<bool> {
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        Ok(self.world.keeps_lines(level, keeps(level)))
    }

    fn write(&mut self, level: Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        let bytes = message.len() + fields.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        self.fuel_charge.bytes(bytes as u64);
        self.fuel_charge.entries(fields.len());
        let mut lines = self.log.lines();
        if fields.iter().any(|(key, _)| key == PANIC_FIELD) {
            lines.panic = Some(one_line(&message, LAST_OUTPUT_BYTES_MAX));
        }
        lines.line(level, bytes, || (one_line(&message, LOG_LINE_BYTES_MAX), one_line_fields(&fields)));
        Ok(())
    }
}

fn one_line_fields(fields: &[(String, String)]) -> String {
    let mut text = String::new();
    for (key, value) in fields.iter().take(LOG_FIELDS_MAX) {
        if text.len() > LOG_LINE_BYTES_MAX {
            break;
        }
        let separator = if text.is_empty() { "" } else { " " };
        #[expect(clippy::let_underscore_must_use, reason = "a String takes everything")]
        let _ = write!(text, "{separator}{}={:?}", one_line(key, 128), one_line(value, LOG_LINE_BYTES_MAX));
    }
    one_line(&text, LOG_LINE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::Debug,
        sync::{Arc, Mutex},
    };

    use tracing::{Event, Metadata, Subscriber, field, span, subscriber::with_default};

    use super::{LAST_OUTPUT_BYTES_MAX, LastOutput, Level, Lines, Stream};

    #[test]
    fn the_last_lines_on_standard_error_are_kept_beyond_the_budget_and_have_a_bound() {
        let mut lines = Lines::new("mine".into(), "clusters.list", (1, 1000));
        assert_eq!(lines.last_output(), None);
        lines.write(Stream::Stderr, b"one\ntwo\n\npanic: three\x1b[31m\ngoroutine 1\nexit");
        let words = LastOutput::Stderr("panic: three [31m goroutine 1 exit".to_owned());
        assert_eq!(lines.last_output(), Some(words));
        lines.write(Stream::Stderr, &[b'x'; 10_000]);
        let Some(LastOutput::Stderr(words)) = lines.last_output() else { panic!("{lines:?}") };
        assert!(words.len() <= LAST_OUTPUT_BYTES_MAX);
    }

    /// Takes down the fields of events, as a subscriber for people would write them.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Written {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    impl field::Visit for Written {
        fn record_debug(&mut self, field: &field::Field, value: &dyn Debug) {
            self.0.lock().unwrap().push(format!("{}={value:?}", field.name()));
        }
    }

    #[test]
    fn a_guest_cannot_forge_a_log_field() {
        let mut lines = Lines::new("mine".into(), "clusters.list", (1, 1000));
        let written = Written::default();
        with_default(written.clone(), || {
            lines.line(Level::Info, 1, || (r#"well" provider.name="other"#.to_owned(), String::new()));
        });
        let written = written.0.lock().unwrap();
        let expected = [
            "message=guest",
            r#"provider.name="mine""#,
            r#"provider.operation="clusters.list""#,
            r#"guest.message="well\" provider.name=\"other""#,
            r#"guest.fields="""#,
        ];
        assert_eq!(*written, expected);
    }
}
