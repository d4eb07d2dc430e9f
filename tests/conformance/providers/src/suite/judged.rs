//! The component compared with the vendor's Go provider, before one cloud.

pub mod balancers;
pub mod machines;
pub mod routes;
pub mod sandboxed;

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use tokio::runtime::Handle;

use crate::cloud::{Difference, Judged};

/// Accounts of one comparison. Most of the time all wait for the cloud.
const ACCOUNTS: usize = 3;

/// The cases that no account has taken yet.
struct Cases<T>(Mutex<std::vec::IntoIter<T>>);

impl<T> Cases<T> {
    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

/// Compares the cases in several accounts at once: each takes the next case until there is none.
///
/// # Errors
/// All differences that the accounts have found.
async fn in_accounts<T: Send + 'static, F: Future<Output = Result<String>>>(
    cases: Vec<T>,
    compare: impl Fn(Arc<Cases<T>>) -> F + Copy + Send + 'static,
) -> Result<()> {
    let cases = Arc::new(Cases(Mutex::new(cases.into_iter())));
    let accounts = (0..ACCOUNTS).map(|_| {
        let (cases, runtime) = (Arc::clone(&cases), Handle::current());
        // A task of its own: a question to the vendor's program occupies the task of its account.
        tokio::task::spawn_blocking(move || runtime.block_on(compare(cases)))
    });
    let mut found = String::new();
    for account in accounts.collect::<Vec<_>>() {
        found.push_str(&account.await.context("a comparison panicked")??);
    }
    ensure!(found.is_empty(), "{found}");
    Ok(())
}

/// What may differ in the case of this name.
fn differences<C: Judged>(case: &str) -> impl Iterator<Item = &'static Difference> {
    C::differences().iter().filter(move |one| one.cases.is_empty() || one.cases.contains(&case))
}

/// The lines that have to be equal.
fn without<C: Judged>(case: &str, lines: &[String]) -> Vec<String> {
    let differs = |text: &str| differences::<C>(case).any(|one| one.lines.iter().any(|part| text.contains(part)));
    lines.iter().filter(|line| !differs(line)).cloned().collect()
}
