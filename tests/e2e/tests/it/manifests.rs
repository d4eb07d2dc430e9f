//! `deploy/manifests` on a real API server: they apply without a warning, and the manager lives on the rights that they give.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{address_of, create_service, delete_service, initialized, nodes, register_node, services, set_ready},
    wait::eventually,
    workspace::{component, root},
};
use tempfile::TempDir;

use crate::simulated::Simulated;

/// The folder as its README says: the component beside the manifests.
fn manifests() -> Result<TempDir> {
    let folder = TempDir::new()?;
    for entry in fs::read_dir(root().join("deploy/manifests"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            fs::copy(&path, folder.path().join(path.file_name().unwrap_or_default()))?;
        }
    }
    fs::copy(component("incus")?, folder.path().join("incus.wasm"))?;
    Ok(folder)
}

fn apply(server: &ApiServer, folder: &Path) -> Result<String> {
    server.kubectl(&["apply", "--server-side", "--warnings-as-errors", "-k", &folder.display().to_string()])
}

#[tokio::test]
async fn the_manifests_apply_without_a_warning_and_again() -> Result<()> {
    let (server, folder) = (ApiServer::start()?, manifests()?);
    apply(&server, folder.path())?;
    // The component arrived whole, in the ConfigMap that the Deployment mounts.
    let map: Value = serde_json::from_str(&server.kubectl(&[
        "-n",
        "skysail-system",
        "get",
        "configmap",
        "skysail-components",
        "-o",
        "json",
    ])?)?;
    let deployment: Value = serde_json::from_str(&server.kubectl(&[
        "-n",
        "skysail-system",
        "get",
        "deployment",
        "skysail",
        "-o",
        "json",
    ])?)?;
    let size = fs::metadata(folder.path().join("incus.wasm"))?.len();
    let encoded = map["binaryData"]["incus.wasm"].as_str().unwrap_or_default().len();
    ensure!(u64::try_from(encoded)? == size.div_ceil(3) * 4, "{encoded} characters of base64 for {size} bytes");
    let pod = &deployment["spec"]["template"];
    ensure!(
        pod["spec"]["volumes"].to_string().contains("\"skysail-components\""),
        "the Deployment mounts {}",
        pod["spec"]["volumes"]
    );
    // A pod as the Deployment makes it passes the namespace's Pod Security Standard.
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": pod["metadata"]["labels"]}, "spec": pod["spec"]});
    let file = folder.path().join("pod.json");
    fs::write(&file, pod.to_string())?;
    server.kubectl(&[
        "-n",
        "skysail-system",
        "create",
        "--dry-run=server",
        "--warnings-as-errors",
        "-f",
        &file.display().to_string(),
    ])?;
    // A changed component is the same object, changed in place: no new name, so no restart.
    let mut bytes = fs::read(folder.path().join("incus.wasm"))?;
    bytes.extend_from_slice(&[0, 2, 1, b'x']);
    fs::write(folder.path().join("incus.wasm"), bytes)?;
    apply(&server, folder.path())?;
    let after: Value = serde_json::from_str(&server.kubectl(&[
        "-n",
        "skysail-system",
        "get",
        "deployment",
        "skysail",
        "-o",
        "json",
    ])?)?;
    ensure!(
        after["metadata"]["generation"] == deployment["metadata"]["generation"],
        "a new component must not change the Deployment"
    );
    Ok(())
}

#[tokio::test]
async fn the_manager_lives_on_the_rights_of_its_service_account() -> Result<()> {
    let (server, folder) = (ApiServer::start()?, manifests()?);
    apply(&server, folder.path())?;
    let token = server.kubectl(&["-n", "skysail-system", "create", "token", "skysail"])?;
    let kubeconfig = server.write_kubeconfig("skysail", &token)?;
    let client = server.client().await?;
    let cloud = Simulated::start(&["a", "b"]).await?;
    let (provider, file) = (component("simcloud")?, cloud.provider_file());
    let manager = Manager::start_with(&["--leader-elect"], &kubeconfig, &provider, &file, &[cloud.token()]).await?;
    // Every write that the controllers have: node, its status, its deletion; finalizer and status of a Service; Events.
    for name in ["a", "b"] {
        register_node(&client, name).await?;
        eventually("the node is initialised", 60, || initialized(&client, name))
            .await
            .map_err(|e| e.context(manager.last_words()))?;
    }
    create_service(&client, "web", 80, 30_080).await?;
    eventually("the Service gets an address", 60, || address_of(&client, "web"))
        .await
        .map_err(|e| e.context(manager.last_words()))?;
    cloud.delete("b").await?;
    set_ready(&client, "b", "Unknown").await?;
    let node_gone = || async {
        ensure!(nodes(&client).get_opt("b").await?.is_none(), "the node is still there");
        Ok(())
    };
    eventually("the node of a deleted machine goes", 60, node_gone)
        .await
        .map_err(|e| e.context(manager.last_words()))?;
    delete_service(&client, "web").await?;
    let service_gone = || async {
        ensure!(services(&client).get_opt("web").await?.is_none(), "the Service waits for its finalizer");
        Ok(())
    };
    eventually("the Service goes", 60, service_gone).await.map_err(|e| e.context(manager.last_words()))?;
    let events = server.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"])?;
    for reason in ["LeaderElection", "Synced", "EnsuredLoadBalancer", "DeletingNode", "DeletedLoadBalancer"] {
        ensure!(events.contains(reason), "no Event {reason} among {events}");
    }
    // The figures are for those who may: the account of the manager may not, an administrator may.
    ensure!(manager.ask("configz", &token).await? == 403, "an account without the right reads /configz");
    ensure!(manager.ask("configz", server.token()).await? == 200, "{}", manager.last_words());
    ensure!(manager.ask("configz", "nobody's").await? == 401, "a token of nobody is taken for anonymous");
    // What the API server itself refused to this account: its own count, not the manager's word.
    let refused = server.kubectl(&["get", "--raw", "/metrics"])?;
    let refused: Vec<_> = refused
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total") && line.contains("code=\"403\""))
        .collect();
    ensure!(refused.is_empty(), "refused by RBAC: {refused:#?}");
    ensure!(!manager.log().to_lowercase().contains("forbidden"), "{}", manager.last_words());
    Ok(())
}

/// Every right that the manifests give, each used by the test before this one; a further one has to be argued here.
const RIGHTS: [&str; 16] = [
    "create events",
    "create leases in kube-system",
    "create subjectaccessreviews.authorization.k8s.io",
    "create tokenreviews.authentication.k8s.io",
    "delete nodes",
    "get leases cloud-controller-manager in kube-system",
    "list nodes",
    "list services",
    "patch events",
    "patch nodes",
    "patch nodes/status",
    "patch services/status",
    "update leases cloud-controller-manager in kube-system",
    "watch leases cloud-controller-manager in kube-system",
    "watch nodes",
    "watch services",
];

#[tokio::test]
async fn the_rights_are_no_more_than_the_controllers_use() -> Result<()> {
    let (server, folder) = (ApiServer::start()?, manifests()?);
    apply(&server, folder.path())?;
    let get = |kind: &str| -> Result<Vec<Value>> {
        let list: Value = serde_json::from_str(&server.kubectl(&["get", kind, "-A", "-o", "json"])?)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        // The API server brings its own.
        Ok(items
            .into_iter()
            .filter(|item| !item["metadata"]["name"].as_str().unwrap_or_default().starts_with("system:"))
            .collect())
    };
    let ours = |item: &Value| item["subjects"].to_string().contains("\"skysail-system\"");
    let bound: Vec<Value> =
        [get("clusterrolebindings")?, get("rolebindings")?].concat().into_iter().filter(ours).collect();
    // The reader of authorities is the API server's own role.
    let (readers, bound): (Vec<Value>, Vec<Value>) = bound
        .into_iter()
        .partition(|binding| binding["roleRef"]["name"] == "extension-apiserver-authentication-reader");
    ensure!(readers.len() == 1 && readers[0]["metadata"]["namespace"] == "kube-system", "{readers:#?}");
    let mut roles = [get("clusterroles")?, get("roles")?].concat();
    roles.retain(|role| role["metadata"]["name"] == "skysail");
    ensure!(bound.len() == 2 && roles.len() == 2, "two are enough, there are {bound:#?} and {roles:#?}");
    ensure!(bound.iter().all(|binding| binding["roleRef"]["name"] == "skysail"), "{bound:#?}");
    let mut rights = BTreeSet::new();
    for role in &roles {
        for rule in role["rules"].as_array().into_iter().flatten() {
            rights.extend(rights_of(&role["metadata"], rule)?);
        }
    }
    ensure!(rights.iter().eq(RIGHTS), "the manifests give {rights:#?}");
    Ok(())
}

/// What one rule gives: verb, resource, the name it is restricted to, and the namespace of its role.
fn rights_of(role: &Value, rule: &Value) -> Result<Vec<String>> {
    let place = role["namespace"].as_str().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    let groups: Vec<_> = texts(&rule["apiGroups"]).collect();
    let group = match (groups.as_slice(), place.is_empty()) {
        ([""], true) | (["coordination.k8s.io"], false) => String::new(),
        ([group], true) => format!(".{group}"),
        _ => bail!("another API group, or more than one: {rule:#}"),
    };
    let names: String = texts(&rule["resourceNames"]).map(|name| format!(" {name}")).collect();
    let pairs = texts(&rule["verbs"]).flat_map(|verb| texts(&rule["resources"]).map(move |it| (verb, it)));
    Ok(pairs.map(|(verb, resource)| format!("{verb} {resource}{group}{names}{place}")).collect())
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
