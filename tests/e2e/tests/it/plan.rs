//! `skysail plan` with a real API server and the simulated cloud, beside a manager that serves
//! both: it shows what would change, and writes nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{address_of, create_service, initialized, register_node, set_port},
    wait::eventually,
    workspace::{component, skysail},
};

use crate::simulated::Simulated;

/// The folder with the provider file, its component and its token.
struct Folder {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

/// What the command answered.
#[derive(Debug)]
struct Answer {
    exit: Option<i32>,
    objects: Vec<Value>,
    errors: String,
}

impl Answer {
    /// The entry of this object.
    fn of(&self, kind: &str, name: &str) -> Result<&Value> {
        let of = |object: &&Value| {
            object.pointer("/kind").and_then(Value::as_str) == Some(kind)
                && object.pointer("/name").and_then(Value::as_str) == Some(name)
        };
        self.objects.iter().find(of).with_context(|| format!("{kind} {name} is not in {self:#?}"))
    }
}

impl Folder {
    fn new(cloud: &Simulated, wasm: &Path, kubeconfig: PathBuf) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (token_name, token) = cloud.token();
        fs::copy(wasm, folder.path().join("provider.wasm"))?;
        fs::write(folder.path().join(token_name), token)?;
        fs::write(folder.path().join("providers.yaml"), cloud.provider_file())?;
        Ok(Self { folder, kubeconfig })
    }

    fn plan(&self, more: &[&str]) -> Result<Answer> {
        let output = Command::new(skysail()?)
            .args(["plan", "--cluster-name=e2e", "--output=json", "--provider-file"])
            .arg(self.folder.path().join("providers.yaml"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(more)
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let objects = serde_json::from_slice(&output.stdout).with_context(|| errors.clone())?;
        Ok(Answer { exit: output.status.code(), objects, errors })
    }
}

/// The records of retained load balancers, which count as those of a Service.
const RETAINED: &str = "--resource-name=skysail-retained-load-balancers";

/// A kubeconfig of an account with the permissions that `skysail plan --help` names, and no other.
fn planner(server: &ApiServer) -> Result<PathBuf> {
    let account = "--serviceaccount=skysail-system:planner";
    for command in [
        ["create", "namespace", "skysail-system"].as_slice(),
        &["--namespace=skysail-system", "create", "serviceaccount", "planner"],
        &["create", "clusterrole", "planner", "--verb=get,list", "--resource=nodes,services"],
        &["create", "clusterrolebinding", "planner", "--clusterrole=planner", account],
        &["-n", "kube-system", "create", "role", "planner", "--verb=get", "--resource=configmaps", RETAINED],
        &["-n", "kube-system", "create", "rolebinding", "planner", "--role=planner", account],
    ] {
        server.kubectl(command)?;
    }
    Ok(server.kubeconfig_of("planner")?.0)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

// Two threads: one serves the cloud, the other waits for the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_shows_what_would_change_and_writes_neither_to_the_cloud_nor_to_the_cluster() -> Result<()> {
    let cloud = Simulated::start(&["a", "b"]).await?;
    let (server, wasm) = (ApiServer::start()?, component("simcloud")?);
    let client = server.client().await?;
    let manager = Manager::start(&server.kubeconfig(), &wasm, &cloud.provider_file(), &[cloud.token()]).await?;
    for node in ["a", "b"] {
        register_node(&client, node).await?;
        let ready = eventually("the node is initialised", 60, || initialized(&client, node)).await;
        ready.map_err(|error| error.context(manager.log_tail()))?;
    }
    create_service(&client, "web", 8080, 30_080).await?;
    eventually("the Service gets an address", 60, || address_of(&client, "web")).await?;
    let folder = Folder::new(&cloud, &wasm, planner(&server)?)?;

    // Beside the manager, which has settled.
    let settled = eventually("a plan has no changes", 60, || async {
        let answer = folder.plan(&[])?;
        ensure!(answer.exit == Some(0) && answer.objects.is_empty(), "{answer:#?}");
        Ok(answer)
    });
    let answer = settled.await?;
    ensure!(answer.errors.contains("nothing would change"), "{answer:#?}");
    // The manager ends, and its cluster changes.
    ensure!(manager.end().await?.success(), "the manager failed");
    set_port(&client, "web", 9090, 30_080).await?;
    create_service(&client, "new", 8081, 30_081).await?;
    let (changes, before) = (cloud.cloud.changes(), cloud.cloud.snapshot());
    cloud.cloud.clear_requests();
    // A flag of the manager under which a manager creates accounts.
    let answer = folder.plan(&["--use-service-account-credentials"])?;
    ensure!(answer.exit == Some(5), "{answer:#?}");
    let web = answer.of("Service", "default/web")?;
    ensure!(text(web, "/requests/0/method") != "GET", "{web}");
    let new = answer.of("Service", "default/new")?;
    ensure!(text(new, "/requests/0/method") == "POST", "{new}");
    ensure!(text(new, "/writes/0/url") == "/api/v1/namespaces/default/services/new/status", "{new}");
    ensure!(!answer.errors.contains(cloud.token().1) && !format!("{answer:?}").contains(cloud.token().1));
    // Nothing was written, neither here nor there.
    ensure!(changes.is_empty(), "the cloud was changed");
    ensure!(before == cloud.cloud.snapshot(), "the cloud was changed");
    let sent = cloud.cloud.requests();
    ensure!(!sent.is_empty() && sent.iter().all(|request| request.method == "GET"), "{sent:?}");
    let writes = server.writes_of("system:serviceaccount:skysail-system:planner")?;
    ensure!(writes.is_empty(), "the plan wrote to the API: {writes:?}");
    Ok(())
}
