//! Paths of the program and of components, and waiting for conditions.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{interval, timeout};

/// Longest wait: a component compiles in seconds, on a busy machine in many seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The program.
pub(crate) const SKYSAIL: &str = env!("CARGO_BIN_EXE_skysail");

/// A component that `make guests` has built.
#[track_caller]
pub(crate) fn built(name: &str) -> PathBuf {
    // TARGET/PROFILE/skysail
    let target = Path::new(SKYSAIL).ancestors().nth(2).unwrap();
    let file = target.join("components").join(format!("{name}.wasm"));
    assert!(file.is_file(), "{} is missing; run make guests", file.display());
    file
}

/// Repeats `look` until it returns a value.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let looks = async {
        let mut turns = interval(LOOK);
        loop {
            turns.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("{what} did not appear in time"))
}
