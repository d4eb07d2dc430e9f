//! Requests through a Service's address, from outside of the cluster.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::Client;

use crate::{
    manager::{Manager, get},
    objects::set_port,
    wait::eventually,
};

/// Waits until exactly these machines answer, each with its name: as many requests in a row as make
/// it certain enough that no other one does.
///
/// # Errors
/// They do not, or others do.
pub async fn wait_for_answers(address: &str, port: u16, names: &[&str]) -> Result<()> {
    let url = format!("http://{address}:{port}/");
    let expected: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let look = || async {
        let mut seen = BTreeSet::new();
        // With three machines, one that is served is missed 30 times in a row once in 190,000.
        for _ in 0..30 {
            let text = get(&url).await.with_context(|| format!("a request to {url}; seen so far: {seen:?}"))?;
            seen.insert(text.trim().to_owned());
        }
        ensure!(seen == expected, "{url} is answered by {seen:?}, not by {expected:?}");
        Ok(())
    };
    eventually("exactly these machines answer", 60, look).await
}

/// Another release takes over while requests to the Service `web` go on (port 8080). Then it does
/// what only it can do: a change that comes after (port 9090), after which these machines answer.
///
/// # Errors
/// It does not, a request fails, or the old release was called.
pub async fn swap(manager: &mut Manager, client: &Client, address: &str, node_port: u16, names: &[&str]) -> Result<()> {
    let before = manager.release()?;
    manager.offer_another_release()?;
    let swapped = || async {
        let now = manager.release()?;
        ensure!(now != before, "release {before} still serves");
        get(&format!("http://{address}:8080/")).await.context("a request during the swap")?;
        Ok(())
    };
    eventually("another release serves", 120, swapped).await?;
    manager.still_runs()?;
    set_port(client, "web", 9090, node_port).await?;
    wait_for_answers(address, 9090, names).await?;
    let (now, calls) = (manager.release()?, manager.calls("load-balancers.ensure"));
    ensure!(calls.last() == Some(&now), "release {now} serves, but `ensure` was called on {calls:?}");
    Ok(())
}
