//! The frame of the demo: steps that are printed, timed and checked, and the table in the end.
//! Knows nothing of what they show.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::time::{Instant, sleep, timeout};

use super::display::Screen;

/// Longest step. Each takes a second or two on an idle machine; a busy one is no reason to fail.
const STEP_MAX: Duration = Duration::from_secs(60);
/// How often a condition is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// What a step has shown.
pub(crate) struct Shown {
    /// What is true now, in one line.
    pub(crate) what: String,
    /// What was measured, in one line.
    pub(crate) figures: String,
}

/// The story so far.
pub(crate) struct Story {
    screen: Screen,
    rows: Vec<(Shown, Duration)>,
}

impl Story {
    pub(crate) fn new(screen: Screen) -> Self {
        Self { screen, rows: Vec::new() }
    }

    /// Tells a step and waits for what it shows.
    ///
    /// # Errors
    /// The step did not hold, or not in time.
    pub(crate) async fn step(
        &mut self,
        title: &str,
        step: impl Future<Output = anyhow::Result<Shown>>,
    ) -> anyhow::Result<()> {
        let number = self.rows.len() + 1;
        self.screen.say(&self.screen.bold(&format!("{number}  {title}")));
        let start = Instant::now();
        let outcome = timeout(STEP_MAX, step).await;
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("not after {} s", STEP_MAX.as_secs())));
        match outcome {
            Ok(shown) => {
                self.screen.say(&format!("   ✓ {}\n     {}\n", shown.what, shown.figures));
                self.rows.push((shown, start.elapsed()));
                Ok(())
            }
            Err(error) => {
                self.screen.say(&format!("   ✗ {error:#}\n"));
                Err(error).with_context(|| format!("step {number} of the demo does not hold ({title})"))
            }
        }
    }

    /// The table of what was shown.
    pub(crate) fn table(&self) -> String {
        let width = self.rows.iter().map(|(shown, _)| shown.what.chars().count()).max().unwrap_or(0);
        let mut table = String::new();
        for (number, (shown, took)) in (1..).zip(&self.rows) {
            let pad = width - shown.what.chars().count();
            table.push_str(&format!(
                "  {number}  {}{}  {:>6.2} s  {}\n",
                shown.what,
                " ".repeat(pad),
                took.as_secs_f64(),
                shown.figures
            ));
        }
        table
    }
}

/// Waits until the condition holds and gives what it found; the step's time limit ends a wait in
/// vain.
pub(crate) async fn until<T>(mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        sleep(LOOK_PERIOD).await;
    }
}
