//! `deploy/manifests` on a real API server: they apply without a warning, and their RBAC rules are
//! what the manager needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, future,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    helm::rendered,
    manager::Manager,
    objects::{
        address_of, create_service, delete_service, has_network, initialized, nodes, register_node, service_gone,
        set_pod_cidr, set_ready,
    },
    wait::eventually,
    workspace::{component, root},
};
use tempfile::TempDir;

use crate::simulated::Simulated;

/// Providers from a mounted file: the component beside the provider file, as the README says.
pub(crate) const FROM_A_FILE: &str = "provider-file";
/// The names in the commands of the README.
const TOKEN: &str = "token";
const COMPONENT: &str = "provider.wasm";

/// The folder with these components of kustomize.
pub(crate) fn manifests(parts: &[&str]) -> Result<TempDir> {
    let folder = TempDir::new()?;
    copy_manifests(&root().join("deploy/manifests"), folder.path())?;
    for part in parts {
        fs::create_dir(folder.path().join(part))?;
        copy_manifests(&root().join("deploy/manifests").join(part), &folder.path().join(part))?;
    }
    if parts.contains(&FROM_A_FILE) {
        fs::copy(component("incus")?, folder.path().join(FROM_A_FILE).join("incus.wasm"))?;
    }
    let file = folder.path().join("kustomization.yaml");
    fs::write(&file, format!("{}components: [{}]\n", fs::read_to_string(&file)?, parts.join(", ")))?;
    Ok(folder)
}

/// The folder with providers from a file, and what the chart renders for a ServiceAccount for each
/// controller.
fn per_controller() -> Result<TempDir> {
    let folder = manifests(&[FROM_A_FILE])?;
    let file = folder.path().join("kustomization.yaml");
    let kustomization = fs::read_to_string(&file)?;
    for (name, text) in rendered(&["--set", "serviceAccountPerController=true"])? {
        fs::write(folder.path().join(name), text)?;
    }
    fs::write(&file, kustomization.replace("- rbac.yaml\n", "- rbac.yaml\n- rbac-per-controller.yaml\n"))?;
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
    let (server, folder) = (ApiServer::start()?, manifests(&[FROM_A_FILE])?);
    let wasm = folder.path().join(FROM_A_FILE).join("incus.wasm");
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
    let size = fs::metadata(&wasm)?.len();
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
    let mut bytes = fs::read(&wasm)?;
    bytes.extend_from_slice(&[0, 2, 1, b'x']);
    fs::write(&wasm, bytes)?;
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
    let (server, folder) = (ApiServer::start()?, manifests(&[])?);
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
    let world = World::from_a_file(&manifests(&[FROM_A_FILE])?).await?;
    world.every_write_that_the_controllers_have().await.map_err(|error| error.context(world.manager.log_tail()))?;
    world.the_figures_are_for_those_who_may().await?;
    world.nothing_was_refused()
}

/// The steps of the README for a Provider as an object, without a component beside the manifests.
#[tokio::test]
async fn the_manager_serves_a_provider_object_on_the_rights_of_the_readmes_steps() -> Result<()> {
    let world = World::from_an_object(&manifests(&[])?).await?;
    world.every_write_that_the_controllers_have().await.map_err(|error| error.context(world.manager.log_tail()))?;
    world.nothing_was_refused()
}

#[tokio::test]
async fn each_controller_lives_on_the_rights_of_its_own_service_account() -> Result<()> {
    let world = World::from_a_file(&per_controller()?).await?;
    world.every_write_that_the_controllers_have().await.map_err(|error| error.context(world.manager.log_tail()))?;
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
pub(crate) struct World {
    /// Before the server: fields are dropped in order, and the end of a manager searches objects.
    pub(crate) manager: Manager,
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    cloud: Simulated,
    token: String,
}

impl World {
    async fn from_a_file(folder: &TempDir) -> Result<Self> {
        Self::on(ApiServer::start()?, folder).await
    }

    /// On this API server, with a provider file.
    pub(crate) async fn on(server: ApiServer, folder: &TempDir) -> Result<Self> {
        let (kubeconfig, token) = Self::install(&server, folder)?;
        let (client, cloud) = (server.client().await?, Simulated::start(&["a", "b"]).await?);
        let (flags, provider) = (flags(&server, "--provider-file=")?, component("simcloud")?);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let file = cloud.provider_file();
        let manager = Manager::start_with(&flags, &kubeconfig, &provider, &file, &[cloud.token()]).await?;
        Ok(Self { server, client, cloud, manager, token })
    }

    async fn from_an_object(folder: &TempDir) -> Result<Self> {
        let server = ApiServer::start()?;
        let (kubeconfig, token) = Self::install(&server, folder)?;
        let (client, cloud) = (server.client().await?, Simulated::start(&["a", "b"]).await?);
        server.wait_for_definition("providers.skysail.dev").await?;
        fs::write(folder.path().join(TOKEN), cloud.token().1)?;
        fs::copy(component("simcloud")?, folder.path().join(COMPONENT))?;
        for command in commands_of_the_readme(folder.path())? {
            server.kubectl(&command.split_whitespace().skip(1).collect::<Vec<_>>())?;
        }
        let object = folder.path().join("provider.json");
        fs::write(&object, provider(&format!("http://{}", cloud.address()?)).to_string())?;
        server.kubectl(&["apply", "-f", &object.display().to_string()])?;
        let flags = flags(&server, "--provider-resources")?;
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut manager = Manager::spawn_with_resources(&flags, &kubeconfig)?;
        manager.wait_until_ready().await.map_err(|error| error.context(manager.log_tail()))?;
        Ok(Self { server, client, cloud, manager, token })
    }

    /// Applies the manifests; returns the kubeconfig and the token of the manager's account.
    fn install(server: &ApiServer, folder: &TempDir) -> Result<(PathBuf, String)> {
        // The API server's default bindings for accounts of these names would hide missing rules.
        for controller in CONTROLLERS {
            server.kubectl(&["delete", "clusterrolebinding", &format!("system:controller:{controller}")])?;
        }
        apply(server, folder.path())?;
        server.kubeconfig_of("skysail")
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
        eventually("the Service goes", 60, || service_gone(client, "web")).await?;
        eventually("there are Events of all", 120, || future::ready(self.has_events())).await
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
        ensure!(manager.ask("configz", server.token()).await? == 200, "{}", manager.log_tail());
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
        ensure!(refused.is_empty(), "refused by RBAC: {refused:#?}; {}", self.manager.log_tail());
        // The manager also checks its permissions at the start and logs missing ones.
        let log = self.manager.log().to_lowercase();
        ensure!(
            !log.contains("forbidden") && !log.contains("this account has no permission"),
            "{}",
            self.manager.log_tail()
        );
        Ok(())
    }
}

/// The flags of the applied Deployment without those for the cluster's name, the providers and the
/// container's folders, and with a flag for routes.
pub(crate) fn flags(server: &ApiServer, providers: &str) -> Result<Vec<String>> {
    let path = "jsonpath={.spec.template.spec.containers[0].args}";
    let flags = server.kubectl(&["-n", "skysail-system", "get", "deployment", "skysail", "-o", path])?;
    let mut flags: Vec<String> = serde_json::from_str(&flags)?;
    ensure!(flags.iter().any(|flag| flag.starts_with(providers)), "no {providers} in {flags:?}");
    let here = [providers, "--cluster-name=", "--state-dir="];
    flags.retain(|flag| flag != "run" && !here.iter().any(|name| flag.starts_with(name)));
    flags.push("--cluster-cidr=10.244.0.0/16".to_owned());
    Ok(flags)
}

/// The commands of the README that give the manager a Secret and a component, with the files in
/// this folder.
fn commands_of_the_readme(folder: &Path) -> Result<Vec<String>> {
    let readme = fs::read_to_string(root().join("deploy/manifests/README.md"))?;
    let (_, step) = readme.split_once("3. **Secrets and components.**").context("no step 3")?;
    let (step, _) = step.split_once("4. **Provider.**").context("no step 4")?;
    let mut commands: Vec<String> =
        step.lines().map(str::trim).filter(|line| line.starts_with("kubectl ")).map(str::to_owned).collect();
    ensure!(commands.len() == 6, "{commands:#?}");
    for name in [TOKEN, COMPONENT] {
        let (flag, file) = (format!("--from-file={name}"), folder.join(name));
        let command = commands.iter_mut().find(|command| command.ends_with(&flag)).context(flag.clone())?;
        *command = command.replace(&flag, &format!("--from-file={}", file.display()));
    }
    Ok(commands)
}

/// Creates the Secret and the ConfigMap that [`provider`] names, with the files in this folder.
pub(crate) fn create_what_the_provider_names(server: &ApiServer, cloud: &Simulated, folder: &Path) -> Result<()> {
    let [token, wasm] = [TOKEN, COMPONENT].map(|name| folder.join(name));
    fs::write(&token, cloud.token().1)?;
    fs::copy(component("simcloud")?, &wasm)?;
    let create = |kind: &[&str], name: &str, file: &Path| {
        let file = format!("--from-file={}", file.display());
        server.kubectl(&[&["-n", "skysail-system", "create"], kind, &[name, &file]].concat()).map(drop)
    };
    create(&["secret", "generic"], "cloud", &token)?;
    create(&["configmap"], "provider", &wasm)
}

/// A Provider with the token and the component of the README's commands.
pub(crate) fn provider(url: &str) -> Value {
    let place = |name: &str, key: &str| json!({ "namespace": "skysail-system", "name": name, "key": key });
    json!({
        "apiVersion": "skysail.dev/v1alpha1",
        "kind": "Provider",
        "metadata": { "name": "sim" },
        "spec": {
            "default": true,
            "source": { "configMap": place("provider", COMPONENT) },
            "loadBalancerCidrs": ["127.0.0.0/8"],
            "nodeCidrs": ["127.0.0.0/8"],
            "config": format!("[Global]\nendpoint = {url}\n"),
            "egress": { "rules": [{ "origins": [url] }], "allowCidrs": ["127.0.0.1/32"] },
            "credentials": {
                "api": { "origins": [url], "bearer": { "secretKeyRef": place("cloud", TOKEN) } },
            },
        },
    })
}

/// Every permission in the manifests; a test above uses each of them.
const RIGHTS: [(&str, &[&str]); 1] = [(
    "skysail-system/skysail",
    &[
        "create configmaps in kube-system",
        "create events",
        "create leases in kube-system",
        "create subjectaccessreviews.authorization.k8s.io",
        "create tokenreviews.authentication.k8s.io",
        "delete nodes",
        "extension-apiserver-authentication-reader in kube-system",
        "get configmaps skysail-retained-load-balancers in kube-system",
        "get leases cloud-controller-manager in kube-system",
        "list configmaps skysail-retained-load-balancers in kube-system",
        "list nodes",
        "list providers.skysail.dev",
        "list services",
        "patch configmaps skysail-retained-load-balancers in kube-system",
        "patch events",
        "patch nodes",
        "patch nodes/status",
        "patch providers/status.skysail.dev",
        "patch services/status",
        "update leases cloud-controller-manager in kube-system",
        "watch configmaps skysail-retained-load-balancers in kube-system",
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
    (
        "kube-system/service-controller",
        &[
            "create configmaps in kube-system",
            "create events",
            "get configmaps skysail-retained-load-balancers in kube-system",
            "patch configmaps skysail-retained-load-balancers in kube-system",
            "patch events",
            "patch services/status",
        ],
    ),
    (
        "skysail-system/skysail",
        &[
            "create events",
            "create leases in kube-system",
            "create serviceaccounts in kube-system",
            "create serviceaccounts/token node-controller in kube-system",
            "create serviceaccounts/token route-controller in kube-system",
            "create serviceaccounts/token service-controller in kube-system",
            "create subjectaccessreviews.authorization.k8s.io",
            "create tokenreviews.authentication.k8s.io",
            "extension-apiserver-authentication-reader in kube-system",
            "get configmaps skysail-retained-load-balancers in kube-system",
            "get leases cloud-controller-manager in kube-system",
            "list configmaps skysail-retained-load-balancers in kube-system",
            "list nodes",
            "list providers.skysail.dev",
            "list services",
            "patch events",
            "patch providers/status.skysail.dev",
            "update leases cloud-controller-manager in kube-system",
            "watch configmaps skysail-retained-load-balancers in kube-system",
            "watch leases cloud-controller-manager in kube-system",
            "watch nodes",
            "watch providers.skysail.dev",
            "watch services",
        ],
    ),
];

#[tokio::test]
async fn the_rights_are_no_more_than_the_controllers_use() -> Result<()> {
    rights_are(&manifests(&[])?, &RIGHTS)
}

#[tokio::test]
async fn the_rights_of_each_account_are_no_more_than_its_controller_uses() -> Result<()> {
    rights_are(&per_controller()?, &RIGHTS_PER_CONTROLLER)
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
