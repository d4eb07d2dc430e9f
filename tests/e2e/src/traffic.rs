//! Requests to a Service's address from outside of the cluster.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::Client;

use crate::{
    manager::{Manager, get},
    objects::set_port,
    wait::eventually,
};

/// Waits until exactly these machines answer, each with its name, in a series of requests that is
/// long enough to notice any other machine.
///
/// # Errors
/// Other machines answer, or one of these does not.
pub async fn wait_for_answers(address: &str, port: u16, names: &[&str]) -> Result<()> {
    let url = format!("http://{address}:{port}/");
    let expected: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let look = || async {
        let mut seen = BTreeSet::new();
        // With three machines, the chance that 30 requests miss one of them is 1 in 190,000.
        for _ in 0..30 {
            let text = get(&url).await.with_context(|| format!("a request to {url}; seen so far: {seen:?}"))?;
            seen.insert(text.trim().to_owned());
        }
        ensure!(seen == expected, "{url} is answered by {seen:?}, not by {expected:?}");
        Ok(())
    };
    eventually("exactly these machines answer", 120, look).await
}

/// Swaps the release while requests to the Service `web` are sent (port 8080). Then changes the
/// port to 9090, which only the new release can do, and waits for answers of these machines.
///
/// # Errors
/// The new release does not serve, a request fails, or the old release was called.
pub async fn swap(manager: &mut Manager, client: &Client, address: &str, node_port: u16, names: &[&str]) -> Result<()> {
    let before = manager.release()?;
    manager.offer_another_release()?;
    let swapped = || async {
        let now = manager.release()?;
        ensure!(now != before, "release {before} still serves");
        get(&format!("http://{address}:8080/")).await.context("a request during the swap")?;
        Ok(())
    };
    eventually("another release serves", 300, swapped).await?;
    manager.still_runs()?;
    set_port(client, "web", 9090, node_port).await?;
    wait_for_answers(address, 9090, names).await?;
    let (now, calls) = (manager.release()?, manager.calls("load-balancers.ensure"));
    ensure!(calls.last() == Some(&now), "release {now} serves, but `ensure` was called on {calls:?}");
    Ok(())
}
