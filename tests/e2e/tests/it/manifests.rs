//! `deploy/manifests` on a real API server: they apply without a warning, and their RBAC rules are
//! what the manager needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, future,
    path::Path,
};

use anyhow::{Result, bail, ensure};
use kube::Client;
use serde_json::Value;
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{
        address_of, create_service, delete_service, has_network, initialized, nodes, register_node, services,
        set_pod_cidr, set_ready,
    },
    wait::eventually,
    workspace::{component, root},
};
use tempfile::TempDir;

use crate::simulated::Simulated;

/// The folder as its README says: the component beside the manifests.
fn manifests() -> Result<TempDir> {
    let folder = TempDir::new()?;
    copy_manifests(&root().join("deploy/manifests"), folder.path())?;
    fs::copy(component("incus")?, folder.path().join("incus.wasm"))?;
    Ok(folder)
}

/// The same with a ServiceAccount for each controller.
fn manifests_per_controller() -> Result<TempDir> {
    let folder = manifests()?;
    let part = folder.path().join("per-controller");
    fs::create_dir(&part)?;
    copy_manifests(&root().join("deploy/manifests/per-controller"), &part)?;
    let file = folder.path().join("kustomization.yaml");
    fs::write(&file, fs::read_to_string(&file)? + "components: [per-controller]\n")?;
    Ok(folder)
}

fn copy_manifests(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            fs::copy(&path, to.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
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

/// Two headers of an answer name the `FlowSchema` and the priority level of the request.
#[tokio::test]
async fn the_lease_of_the_service_account_has_the_priority_of_leader_election() -> Result<()> {
    let (server, folder) = (ApiServer::start()?, manifests()?);
    apply(&server, folder.path())?;
    let token = server.kubectl(&["-n", "skysail-system", "create", "token", "skysail"])?;
    for (path, level) in [
        ("apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager", "leader-election"),
        ("api/v1/nodes", "workload-high"),
    ] {
        let uid = server.kubectl(&["get", "prioritylevelconfiguration", level, "-o", "jsonpath={.metadata.uid}"])?;
        // The API server takes up a new FlowSchema within seconds.
        let has_level = || async {
            let found = server.priority_level_of(path, &token).await?;
            ensure!(found == uid, "{path} has the level {found}, not {level} ({uid})");
            Ok(())
        };
        eventually("the request has its level", 60, has_level).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_manager_lives_on_the_rights_of_its_service_account() -> Result<()> {
    let world = World::start(&manifests()?).await?;
    world.every_write_that_the_controllers_have().await.map_err(|error| error.context(world.manager.last_words()))?;
    world.the_figures_are_for_those_who_may().await?;
    world.nothing_was_refused()
}

#[tokio::test]
async fn each_controller_lives_on_the_rights_of_its_own_service_account() -> Result<()> {
    let world = World::start(&manifests_per_controller()?).await?;
    world.every_write_that_the_controllers_have().await.map_err(|error| error.context(world.manager.last_words()))?;
    world.nothing_was_refused()?;
    for controller in CONTROLLERS {
        let writes = world.server.writes_of(&format!("system:serviceaccount:kube-system:{controller}"))?;
        ensure!(!writes.is_empty(), "{controller} wrote nothing as itself");
    }
    let writes = world.server.writes_of("system:serviceaccount:skysail-system:skysail")?;
    let of_a_controller = |write: &&String| write.contains("/nodes/") || write.contains("/services/");
    let wrong: Vec<_> = writes.iter().filter(of_a_controller).collect();
    ensure!(wrong.is_empty(), "the process itself wrote {wrong:#?}");
    Ok(())
}

const CONTROLLERS: [&str; 3] = ["service-controller", "node-controller", "route-controller"];

/// The manager as the applied Deployment runs it: with its flags, as its account.
struct World {
    server: ApiServer,
    client: Client,
    cloud: Simulated,
    manager: Manager,
    token: String,
}

impl World {
    async fn start(folder: &TempDir) -> Result<Self> {
        let server = ApiServer::start()?;
        // The API server's default bindings for accounts of these names would hide missing rules.
        for controller in CONTROLLERS {
            server.kubectl(&["delete", "clusterrolebinding", &format!("system:controller:{controller}")])?;
        }
        apply(&server, folder.path())?;
        let token = server.kubectl(&["-n", "skysail-system", "create", "token", "skysail"])?;
        let kubeconfig = server.write_kubeconfig("skysail", &token)?;
        let (client, cloud) = (server.client().await?, Simulated::start(&["a", "b"]).await?);
        let (flags, provider) = (flags(&server)?, component("simcloud")?);
        let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        // So that there are routes.
        flags.push("--cluster-cidr=10.244.0.0/16");
        let file = cloud.provider_file();
        let manager = Manager::start_with(&flags, &kubeconfig, &provider, &file, &[cloud.token()]).await?;
        Ok(Self { server, client, cloud, manager, token })
    }

    /// Node, its status, its deletion; finalizer and status of a Service; Events.
    async fn every_write_that_the_controllers_have(&self) -> Result<()> {
        let client = &self.client;
        for (name, cidr) in [("a", "10.244.0.0/24"), ("b", "10.244.1.0/24")] {
            register_node(client, name).await?;
            eventually("the node is initialised", 60, || initialized(client, name)).await?;
            set_pod_cidr(client, name, cidr).await?;
            let has_route = || async {
                ensure!(has_network(&nodes(client).get(name).await?), "its network is not available");
                anyhow::Ok(())
            };
            eventually("the node gets a route", 60, has_route).await?;
        }
        create_service(client, "web", 80, 30_080).await?;
        eventually("the Service gets an address", 60, || address_of(client, "web")).await?;
        self.cloud.delete("b").await?;
        set_ready(client, "b", "Unknown").await?;
        let node_gone = || async {
            ensure!(nodes(client).get_opt("b").await?.is_none(), "the node is still there");
            anyhow::Ok(())
        };
        eventually("the node of a deleted machine goes", 60, node_gone).await?;
        delete_service(client, "web").await?;
        let service_gone = || async {
            ensure!(services(client).get_opt("web").await?.is_none(), "the Service waits for its finalizer");
            anyhow::Ok(())
        };
        eventually("the Service goes", 60, service_gone).await?;
        eventually("there are Events of all", 30, || future::ready(self.has_events())).await
    }

    fn has_events(&self) -> Result<()> {
        let events = self.server.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"])?;
        for reason in ["LeaderElection", "Synced", "EnsuredLoadBalancer", "DeletingNode", "DeletedLoadBalancer"] {
            ensure!(events.contains(reason), "no Event {reason} among {events}");
        }
        Ok(())
    }

    /// The manager's account must not read /configz; an administrator may.
    async fn the_figures_are_for_those_who_may(&self) -> Result<()> {
        let Self { manager, server, .. } = self;
        ensure!(manager.ask("configz", &self.token).await? == 403, "an account without the right reads /configz");
        ensure!(manager.ask("configz", server.token()).await? == 200, "{}", manager.last_words());
        ensure!(manager.ask("configz", "of-no-account").await? == 401, "an invalid token is taken for anonymous");
        Ok(())
    }

    /// Checks the API server's metrics for requests that RBAC refused.
    fn nothing_was_refused(&self) -> Result<()> {
        let figures = self.server.kubectl(&["get", "--raw", "/metrics"])?;
        let refused: Vec<_> = figures
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total") && line.contains("code=\"403\""))
            .collect();
        ensure!(refused.is_empty(), "refused by RBAC: {refused:#?}; {}", self.manager.last_words());
        // The manager also checks its permissions at the start and logs missing ones.
        let log = self.manager.log().to_lowercase();
        ensure!(
            !log.contains("forbidden") && !log.contains("this account has no permission"),
            "{}",
            self.manager.last_words()
        );
        Ok(())
    }
}

/// The flags of the applied Deployment without those for the cluster's name, the providers and the
/// container's folders.
fn flags(server: &ApiServer) -> Result<Vec<String>> {
    let path = "jsonpath={.spec.template.spec.containers[0].args}";
    let flags = server.kubectl(&["-n", "skysail-system", "get", "deployment", "skysail", "-o", path])?;
    let mut flags: Vec<String> = serde_json::from_str(&flags)?;
    let here = ["--provider-file=", "--cluster-name=", "--state-dir="];
    flags.retain(|flag| flag != "run" && !here.iter().any(|name| flag.starts_with(name)));
    Ok(flags)
}

/// Every permission in the manifests; a test above uses each of them.
const RIGHTS: [(&str, &[&str]); 1] = [(
    "skysail-system/skysail",
    &[
        "create events",
        "create leases in kube-system",
        "create subjectaccessreviews.authorization.k8s.io",
        "create tokenreviews.authentication.k8s.io",
        "delete nodes",
        "extension-apiserver-authentication-reader in kube-system",
        "get leases cloud-controller-manager in kube-system",
        "list nodes",
        "list providers.skysail.dev",
        "list services",
        "patch events",
        "patch nodes",
        "patch nodes/status",
        "patch providers/status.skysail.dev",
        "patch services/status",
        "update leases cloud-controller-manager in kube-system",
        "watch leases cloud-controller-manager in kube-system",
        "watch nodes",
        "watch providers.skysail.dev",
        "watch services",
    ],
)];

const RIGHTS_PER_CONTROLLER: [(&str, &[&str]); 4] = [
    (
        "kube-system/node-controller",
        &["create events", "delete nodes", "patch events", "patch nodes", "patch nodes/status"],
    ),
    ("kube-system/route-controller", &["patch nodes/status"]),
    ("kube-system/service-controller", &["create events", "patch events", "patch services/status"]),
    (
        "skysail-system/skysail",
        &[
            "create events",
            "create leases in kube-system",
            "create serviceaccounts/token node-controller in kube-system",
            "create serviceaccounts/token route-controller in kube-system",
            "create serviceaccounts/token service-controller in kube-system",
            "create subjectaccessreviews.authorization.k8s.io",
            "create tokenreviews.authentication.k8s.io",
            "extension-apiserver-authentication-reader in kube-system",
            "get leases cloud-controller-manager in kube-system",
            "list nodes",
            "list providers.skysail.dev",
            "list services",
            "patch events",
            "patch providers/status.skysail.dev",
            "update leases cloud-controller-manager in kube-system",
            "watch leases cloud-controller-manager in kube-system",
            "watch nodes",
            "watch providers.skysail.dev",
            "watch services",
        ],
    ),
];

#[tokio::test]
async fn the_rights_are_no_more_than_the_controllers_use() -> Result<()> {
    rights_are(&manifests()?, &RIGHTS)
}

#[tokio::test]
async fn the_rights_of_each_account_are_no_more_than_its_controller_uses() -> Result<()> {
    rights_are(&manifests_per_controller()?, &RIGHTS_PER_CONTROLLER)
}

fn rights_are(folder: &TempDir, expected: &[(&str, &[&str])]) -> Result<()> {
    let server = ApiServer::start()?;
    apply(&server, folder.path())?;
    let rights = rights(&server)?;
    let expected: BTreeMap<String, BTreeSet<String>> = expected
        .iter()
        .map(|(account, rights)| ((*account).to_owned(), rights.iter().map(|right| (*right).to_owned()).collect()))
        .collect();
    ensure!(rights == expected, "the manifests give {rights:#?}");
    Ok(())
}

/// The permissions of each account, `NAMESPACE/NAME`. A built-in role is one entry.
fn rights(server: &ApiServer) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let ours = |kinds: &str| -> Result<Value> {
        let label = "kubernetes.io/bootstrapping!=rbac-defaults";
        Ok(serde_json::from_str(&server.kubectl(&["get", kinds, "-A", "-l", label, "-o", "json"])?)?)
    };
    let (roles, bindings) = (ours("clusterroles,roles")?, ours("clusterrolebindings,rolebindings")?);
    let mut rights: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for binding in list(&bindings, "/items") {
        let namespace = text(binding, "/metadata/namespace");
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        let meant = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        let role = list(&roles, "/items").find(|role| (text(role, "/kind"), text(role, "/metadata/name")) == meant);
        let mut given = Vec::new();
        match role {
            None => given.push(format!("{}{place}", meant.1)),
            Some(role) => {
                for rule in list(role, "/rules") {
                    given.extend(rights_of(&place, rule)?);
                }
            }
        }
        for subject in list(binding, "/subjects") {
            let account = format!("{}/{}", text(subject, "/namespace"), text(subject, "/name"));
            rights.entry(account).or_default().extend(given.clone());
        }
    }
    Ok(rights)
}

/// The permissions of one rule: verb, resource and resource name.
fn rights_of(place: &str, rule: &Value) -> Result<Vec<String>> {
    let groups: Vec<_> = texts(rule, "/apiGroups").collect();
    let group = match (groups.as_slice(), place.is_empty()) {
        ([""], _) | (["coordination.k8s.io"], false) => String::new(),
        ([group], true) => format!(".{group}"),
        _ => bail!("another API group, or more than one: {rule:#}"),
    };
    let mut names: Vec<String> = texts(rule, "/resourceNames").map(|name| format!(" {name}")).collect();
    if names.is_empty() {
        names.push(String::new());
    }
    let pairs = texts(rule, "/verbs").flat_map(|verb| texts(rule, "/resources").map(move |it| (verb, it)));
    let rights = pairs.flat_map(|(verb, resource)| names.iter().map(move |name| (verb, resource, name)));
    Ok(rights.map(|(verb, resource, name)| format!("{verb} {resource}{group}{name}{place}")).collect())
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn texts<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    list(value, pointer).filter_map(Value::as_str)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
