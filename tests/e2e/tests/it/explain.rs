//! `skysail explain service` against two managers with one Lease: the leader explains a Service
//! with its calls and their requests, and the other one names the leader.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use skysail_test_e2e::{
    manager::Manager,
    objects::{address_of, create_service},
    wait::eventually,
    workspace::{component, run, skysail},
};
use tempfile::TempDir;

use crate::simulated::Site;

const NODE_PORT: u16 = 30_080;

#[tokio::test]
async fn the_leader_explains_a_service_with_its_calls_and_a_replica_names_the_leader() -> Result<()> {
    let Site { cloud, server, client } = Site::start(&["a"]).await?;
    let (file, kubeconfig, simcloud) = (cloud.provider_file(), server.kubeconfig(), component("simcloud")?);
    let leader = Manager::start_with(&[], &kubeconfig, &simcloud, &file, &[cloud.token()]).await?;
    create_service(&client, "web", 8080, NODE_PORT).await?;
    eventually("the Service gets an address", 60, || address_of(&client, "web")).await?;
    let replica = Manager::start_with(&[], &kubeconfig, &simcloud, &file, &[cloud.token()]).await?;

    let folder = TempDir::new()?;
    let token = folder.path().join("token");
    fs::write(&token, server.token())?;
    let token = token.display().to_string();
    let ask = |manager: &Manager, more: &[&str]| {
        let flags = ["explain", "service", "--server", manager.address(), "--insecure-skip-tls-verify"];
        run(skysail()?, &[&flags[..], more].concat())
    };
    let page = ask(&leader, &["default/web", "--token-file", &token])?;
    for text in ["Service default/web: up to date\n", "is the default provider", "Nothing: ", "load-balancers.ensure"] {
        ensure!(page.contains(text), "{text:?} is not in\n{page}");
    }
    let document: Value = serde_json::from_str(&ask(&leader, &["web", "--token-file", &token, "--output=json"])?)?;
    let requests = document.pointer("/calls/0/requests").and_then(Value::as_array).context("no requests")?;
    let origin = format!("http://{}/", cloud.address()?);
    let is_of_cloud = |request: &Value| {
        let url = request.get("url").and_then(Value::as_str).unwrap_or_default();
        url.starts_with(&origin) && !url.contains('?') && request.get("status").is_some_and(Value::is_u64)
    };
    ensure!(!requests.is_empty() && requests.iter().all(is_of_cloud), "{document:#}");
    ensure!(!document.to_string().contains(cloud.token().1), "the answer has the credential");

    for (manager, arguments, said) in [
        (&replica, &["web", "--token-file", &token][..], "is not the leader; ask "),
        (&leader, &["other", "--token-file", &token], "there is no Service default/other; "),
        (&leader, &["web"], "--non-resource-url='/services/*'"),
    ] {
        let Err(error) = ask(manager, arguments) else { anyhow::bail!("{arguments:?} succeeds") };
        ensure!(error.to_string().contains(said), "{error}");
    }
    for manager in [replica, leader] {
        let status = manager.end().await?;
        ensure!(status.success(), "a manager ended with {status}");
    }
    Ok(())
}
