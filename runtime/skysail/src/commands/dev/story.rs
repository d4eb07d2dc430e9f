//! The frame of the demo: it prints, times and checks the steps and prints a table at the end. The
//! steps themselves are in `demo`.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::time::{Instant, sleep, timeout};

use super::display::Screen;

/// Longest step. A step takes a second or two on an idle machine; a busy machine must not fail.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Pause between two checks of a condition.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// The result of a step.
pub(crate) struct Shown {
    /// What the step has proved, in one line.
    pub(crate) what: String,
    /// Measurements, in one line.
    pub(crate) figures: String,
}

/// The steps so far.
pub(crate) struct Story {
    screen: Screen,
    rows: Vec<(Shown, Duration)>,
}

impl Story {
    pub(crate) fn new(screen: Screen) -> Self {
        Self { screen, rows: Vec::new() }
    }

    /// Prints the title of a step, runs the step and prints its result.
    ///
    /// # Errors
    /// The step failed or took longer than [`STEP_MAX`].
    pub(crate) async fn step(
        &mut self,
        title: &str,
        step: impl Future<Output = anyhow::Result<Shown>>,
    ) -> anyhow::Result<()> {
        let number = self.rows.len() + 1;
        self.screen.say(&self.screen.bold(&format!("{number}  {title}")));
        let start = Instant::now();
        let outcome = timeout(STEP_MAX, step).await;
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("not done within {} s", STEP_MAX.as_secs())));
        match outcome {
            Ok(shown) => {
                self.screen.say(&format!("   ✓ {}\n     {}\n", shown.what, shown.figures));
                self.rows.push((shown, start.elapsed()));
                Ok(())
            }
            Err(error) => {
                self.screen.say(&format!("   ✗ {error:#}\n"));
                Err(error).with_context(|| format!("step {number} of the demo failed ({title})"))
            }
        }
    }

    /// The table of the results.
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

/// Waits until the condition returns a value; [`STEP_MAX`] bounds the wait.
pub(crate) async fn until<T>(mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        sleep(LOOK_PERIOD).await;
    }
}
