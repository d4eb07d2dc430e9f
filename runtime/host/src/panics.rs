//! Panics of tasks that nobody joins. A panic is a bug in Skysail; the owner of the process ends
//! the process, because the rest of the task's work would be missing in silence.

use std::{sync::Arc, thread};

use tokio::sync::watch;

/// Whether a guarded task has panicked. Cloning shares the answer.
#[derive(Clone, Debug, Default)]
pub struct Panics(Arc<watch::Sender<bool>>);

impl Panics {
    /// Runs a task to its end. A panic of the task goes on, and is reported.
    pub async fn guard(self, task: impl Future<Output = ()>) {
        let _report = Report(self);
        task.await;
    }

    /// Waits until a guarded task panics.
    pub async fn reported(&self) {
        // The sender is in `self`, so the channel is open.
        drop(self.0.subscribe().wait_for(|panicked| *panicked).await);
    }
}

/// Dropped by the end of a task: also by a panic and by the abortion of the task.
struct Report(Panics);

impl Drop for Report {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.0.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::task::JoinSet;

    use super::Panics;

    #[tokio::test]
    async fn only_a_panic_of_a_guarded_task_is_reported() {
        let (panics, mut tasks) = (Panics::default(), JoinSet::new());
        tasks.spawn(panics.clone().guard(async {}));
        tasks.spawn(panics.clone().guard(std::future::pending()));
        assert!(tasks.join_next().await.unwrap().is_ok());
        tasks.shutdown().await;
        assert!(panics.reported().now_or_never().is_none());
        tasks.spawn(panics.clone().guard(async { panic!("the bug") }));
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_panic());
        assert!(panics.reported().now_or_never().is_some());
    }
}
