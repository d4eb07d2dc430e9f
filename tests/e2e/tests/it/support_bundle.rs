//! `skysail support-bundle` on a real API server: the objects are there, and the secrets that a
//! user wrote into them are not.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    helm::NAMESPACE,
    objects::create_service,
    workspace::{root, run, skysail},
};
use tempfile::TempDir;

/// What no file of the bundle may have.
const SECRET: &str = "s3cret-of-the-support-bundle";

#[tokio::test]
async fn a_support_bundle_has_the_objects_of_a_cluster_and_none_of_its_secrets() -> Result<()> {
    let (server, folder) = (ApiServer::start()?, TempDir::new()?);
    server.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &root().join("deploy/manifests/crd.yaml").display().to_string(),
    ])?;
    server.wait_for_definition("providers.skysail.dev").await?;
    server.kubectl(&["create", "namespace", NAMESPACE])?;
    server.kubectl(&[
        "-n",
        NAMESPACE,
        "create",
        "secret",
        "generic",
        "cloud",
        &format!("--from-literal=token={SECRET}"),
    ])?;
    create_service(&server.client().await?, "web", 80, 30_080).await?;
    server.kubectl(&["annotate", "service", "web", &format!("example.com/api-token={SECRET}")])?;
    let spec =
        json!({ "source": { "oci": { "reference": "ghcr.io/org/provider:v1" } }, "config": format!("key = {SECRET}") });
    let kind = ("skysail.dev/v1alpha1", "Provider");
    apply(&server, &folder, kind, &json!({ "name": "sim" }), &spec)?;
    let (name, labels) = ("skysail", json!({ "app.kubernetes.io/name": "skysail" }));
    let container = json!({ "name": name, "image": name, "env": [{ "name": "TOKEN", "value": SECRET }] });
    let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": pod });
    let metadata = json!({ "name": name, "namespace": NAMESPACE, "labels": labels });
    apply(&server, &folder, ("apps/v1", "Deployment"), &metadata, &spec)?;

    let file = folder.path().join("bundle.tar.gz").display().to_string();
    let kubeconfig = server.kubeconfig().display().to_string();
    let printed = run(skysail()?, &["support-bundle", "--kubeconfig", &kubeconfig, "--file", &file])?;
    let tar = Command::new("tar").args(["xOzf", &file]).output()?;
    ensure!(tar.status.success(), "tar ends with {}", tar.status);
    let all = String::from_utf8(tar.stdout).context("the files are no UTF-8 text")?;
    ensure!(!all.contains(SECRET), "a secret is in\n{all}");
    for (path, number) in
        [("providers.yaml", 1), ("services.yaml", 1), ("deployments.yaml", 1), ("pods.yaml", 0), ("nodes.yaml", 0)]
    {
        let has =
            |text: &str| text.lines().any(|line| line.split_whitespace().eq([path, "objects:", &number.to_string()]));
        ensure!(has(&printed) && has(&all), "{path} has not {number} objects:\n{printed}");
    }
    let missing: Vec<_> = printed.lines().filter(|line| line.contains(" missing: ")).collect();
    ensure!(missing.len() == 1 && missing.concat().contains("has no pod with the label"), "{printed}");
    for kept in [
        "config: REDACTED",
        "reference: ghcr.io/org/provider:v1",
        "name: web",
        "example.com/api-token: REDACTED",
        "kind: Service",
    ] {
        ensure!(all.contains(kept), "{kept:?} is not in\n{all}");
    }
    Ok(())
}

fn apply(server: &ApiServer, folder: &TempDir, kind: (&str, &str), metadata: &Value, spec: &Value) -> Result<()> {
    let file = folder.path().join("object.json");
    let object = json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec });
    std::fs::write(&file, object.to_string())?;
    // `kubectl apply` keeps the whole object in an annotation.
    server.kubectl(&["apply", "-f", &file.display().to_string()]).map(drop)
}
