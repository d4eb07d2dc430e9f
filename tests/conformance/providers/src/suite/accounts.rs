//! Cases of one test, divided among accounts of the cloud.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use tokio::runtime::Handle;

/// Accounts of one test. Most of the time all wait for the cloud.
const ACCOUNTS: usize = 3;

/// The cases that no account has taken yet.
pub(super) struct Cases<T>(Mutex<std::vec::IntoIter<T>>);

impl<T> Cases<T> {
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

/// Works on the cases in several accounts at once: each takes the next case until there is none.
///
/// # Errors
/// All problems that the accounts have found.
pub(super) async fn in_accounts<T: Send + 'static, F: Future<Output = Result<String>>>(
    cases: Vec<T>,
    work: impl Fn(Arc<Cases<T>>) -> F + Copy + Send + 'static,
) -> Result<()> {
    let cases = Arc::new(Cases(Mutex::new(cases.into_iter())));
    let accounts = (0..ACCOUNTS).map(|_| {
        let (cases, runtime) = (Arc::clone(&cases), Handle::current());
        // A task of its own: a question to the vendor's program occupies the task of its account.
        tokio::task::spawn_blocking(move || runtime.block_on(work(cases)))
    });
    let mut found = String::new();
    for account in accounts.collect::<Vec<_>>() {
        found.push_str(&account.await.context("the work of an account panicked")??);
    }
    ensure!(found.is_empty(), "{found}");
    Ok(())
}
