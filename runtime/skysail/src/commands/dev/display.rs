//! The live output of `skysail dev`: provider calls, actions of the controllers, changes in the
//! cloud, and releases.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::Arc,
};

use skysail_controllers::Activity;
use skysail_dev::cloud::Change;
use skysail_host::{
    CallOutcome, CallRecord,
    slot::{SlotStatus, Stage},
};
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        watch,
    },
    time::Instant,
};

use crate::output::plain;

/// Standard output, a line at a time. Cloning is cheap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    start: Instant,
    colour: bool,
}

/// The part that a line is about.
#[derive(Clone, Copy, Debug)]
enum Topic {
    Cluster,
    Provider,
    Release,
    Cloud,
    Build,
}

impl Topic {
    const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Provider => "provider",
            Self::Release => "release",
            Self::Cloud => "cloud",
            Self::Build => "build",
        }
    }

    /// An ANSI colour.
    const fn colour(self) -> &'static str {
        match self {
            Self::Cluster => "36",
            Self::Provider => "35",
            Self::Release => "33",
            Self::Cloud => "34",
            Self::Build => "32",
        }
    }
}

impl Screen {
    /// Colours only on a terminal.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), colour: std::io::stdout().is_terminal() }
    }

    /// Prints text as it is.
    pub(crate) fn say(self, text: &str) {
        // A closed standard output is ignored.
        drop(writeln!(std::io::stdout().lock(), "{text}"));
    }

    /// A line about the build of an author; untrusted text, too.
    pub(crate) fn build(self, failed: bool, text: &str) {
        self.line(Topic::Build, failed, text);
    }

    /// The text in bold, on a terminal.
    pub(crate) fn bold(self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn line(self, topic: Topic, failed: bool, text: &str) {
        self.say(&self.line_of(topic, failed, text));
    }

    /// Components and clouds are not trusted: their text must not move the cursor.
    fn line_of(self, topic: Topic, failed: bool, text: &str) -> String {
        let (seconds, name, text) = (self.start.elapsed().as_secs_f64(), topic.name(), plain(text));
        let mark = if failed { "!" } else { " " };
        if self.colour {
            let text_colour = if failed { "31" } else { "0" };
            let colour = topic.colour();
            format!("{seconds:8.3}s \x1b[{colour}m{name:<8}\x1b[0m {mark} \x1b[{text_colour}m{text}\x1b[0m")
        } else {
            format!("{seconds:8.3}s {name:<8} {mark} {text}")
        }
    }
}

/// The channels whose content is shown.
pub(crate) struct Feeds {
    pub(crate) calls: broadcast::Receiver<Arc<CallRecord>>,
    pub(crate) activity: broadcast::Receiver<Activity>,
    pub(crate) changes: broadcast::Receiver<Change>,
    pub(crate) slot: watch::Receiver<SlotStatus>,
}

/// Shows everything until a feed ends.
pub(crate) async fn show(screen: Screen, mut feeds: Feeds) {
    let mut known: Option<SlotStatus> = None;
    loop {
        tokio::select! {
            call = feeds.calls.recv() => match call {
                Ok(record) => screen.line(Topic::Provider, record.outcome != CallOutcome::Ok, &call_text(&record)),
                Err(error) => if ended(screen, &error) { return },
            },
            activity = feeds.activity.recv() => match activity {
                Ok(activity) => {
                    let Activity { controller: _, provider: _, kind, object, text, failed } = activity;
                    screen.line(Topic::Cluster, failed, &format!("{kind} {object}: {text}"));
                }
                Err(error) => if ended(screen, &error) { return },
            },
            change = feeds.changes.recv() => match change {
                Ok(change) => show_change(screen, &change),
                Err(error) => if ended(screen, &error) { return },
            },
            changed = feeds.slot.changed() => {
                if changed.is_err() {
                    return;
                }
                let status = feeds.slot.borrow_and_update().clone();
                show_release(screen, known.as_ref(), &status);
                known = Some(status);
            }
        }
    }
}

/// Shows the changes in the cloud until it ends.
pub(crate) async fn show_cloud(screen: Screen, mut changes: broadcast::Receiver<Change>) {
    loop {
        match changes.recv().await {
            Ok(change) => show_change(screen, &change),
            Err(error) => {
                if ended(screen, &error) {
                    return;
                }
            }
        }
    }
}

fn show_change(screen: Screen, Change { verb, kind, id: _, name, tags: _ }: &Change) {
    screen.line(Topic::Cloud, false, &format!("{kind} {name} {verb}"));
}

/// Whether the feed is closed; a slow terminal only misses lines.
fn ended(screen: Screen, error: &RecvError) -> bool {
    match error {
        RecvError::Closed => true,
        RecvError::Lagged(missed) => {
            screen.say(&format!("          ({missed} lines not shown)"));
            false
        }
    }
}

fn show_release(screen: Screen, known: Option<&SlotStatus>, status: &SlotStatus) {
    let candidate = |status: &SlotStatus| status.candidate.as_ref().map(|candidate| candidate.digest.clone());
    if let Some(digest) = candidate(status)
        && known.and_then(candidate).as_ref() != Some(&digest)
    {
        screen.line(
            Topic::Release,
            false,
            &format!("{}…: checking and compiling", digest.get(..19).unwrap_or(&digest)),
        );
    }
    let swap = |status: &SlotStatus| status.active.as_ref().map(|active| active.swap);
    if known.and_then(swap) != swap(status)
        && let Some(active) = &status.active
    {
        let digest = active.digest.get(..19).unwrap_or(&active.digest);
        let text = format!("{} {} serves ({digest}…): {}", active.name, active.version, active.interfaces.join(", "));
        screen.line(Topic::Release, false, &text);
    }
    if known.and_then(|known| known.source_failure.as_ref()) != status.source_failure.as_ref()
        && let Some(failure) = &status.source_failure
    {
        screen.line(Topic::Release, true, &format!("the source cannot be read: {}", failure.reason));
    }
    if known.and_then(|known| known.refused.as_ref()) != status.refused.as_ref()
        && let Some(refusal) = &status.refused
    {
        let text = format!("refused while {}: {}", after(refusal.stage), refusal.reason);
        screen.line(Topic::Release, true, &text);
    }
}

/// The next step for a release that has reached this stage.
const fn after(stage: Stage) -> &'static str {
    match stage {
        Stage::Offered => "reading the component",
        Stage::Verified => "compiling the component",
        Stage::Compiled => "linking the component",
        Stage::Linked => "calling identity.describe",
        Stage::Described => "checking the cloud-config",
        Stage::ConfigChecked => "comparing the component with the release that serves",
        Stage::Shadowed | Stage::Canary | Stage::Active => "activating the component",
    }
}

/// One call in one line.
fn call_text(record: &CallRecord) -> String {
    let object = record.object.as_ref().map_or_else(String::new, |object| match object.namespace.as_str() {
        "" => format!(" {}", object.name),
        namespace => format!(" {namespace}/{}", object.name),
    });
    let outcome = match &record.outcome {
        CallOutcome::Ok => "ok".to_owned(),
        CallOutcome::Failed { code, message } => format!("{}: {message}", code.category()),
        CallOutcome::Cancelled => "cancelled".to_owned(),
    };
    format!(
        "{}{object}  {outcome}  [{:.1} ms, {} k fuel, {} requests]",
        record.function,
        record.wall.as_secs_f64() * 1e3,
        record.fuel / 1000,
        record.http.requests,
    )
}

#[cfg(test)]
mod tests {
    use super::{Instant, Screen, Topic};

    #[test]
    fn control_characters_of_untrusted_text_do_not_reach_the_terminal() {
        for colour in [false, true] {
            let screen = Screen { start: Instant::now(), colour };
            let line = screen.line_of(Topic::Cloud, false, "volume a\x1b[2J\r\nb\u{9b}31m\u{202e} created");
            let own = line.replace("\x1b[34m", "").replace("\x1b[0m", "");
            assert!(!own.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
            assert!(own.contains("volume a") && own.contains("created"), "{line:?}");
        }
    }
}
