//! Tests of `skysail dev` as a process: a changed component, a provider file, a manager elsewhere,
//! and the end by a signal.

use std::{
    ffi::OsStr,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use skysail_dev::cloud::{SimCloud, SimOptions};
use skysail_test_support::{ports, simcloud};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::program::{PATIENCE, SKYSAIL, built, until};

/// A running `skysail dev`. Dropping this value kills the process and deletes its temporary files.
struct Dev {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    _temporary: TempDir,
}

impl Dev {
    fn start(provider: &Path) -> Self {
        Self::start_with(provider, &[])
    }

    fn start_with(provider: &Path, args: &[&OsStr]) -> Self {
        Self::spawn(&[&["--provider".as_ref(), provider.as_os_str()], args].concat())
    }

    fn spawn(args: &[&OsStr]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(SKYSAIL);
        command.args(["dev", "--nodes", "1"]).args(args).kill_on_drop(true);
        command.env("TMPDIR", temporary.path());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, _temporary: temporary }
    }

    /// Reads up to the first line for which `look` returns a value.
    async fn until<T>(&mut self, mut look: impl FnMut(&str) -> Option<T>) -> T {
        let read = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if let Some(found) = look(&line) {
                    return found;
                }
            }
            panic!("the process ended");
        };
        timeout(PATIENCE, read).await.expect("the expected line should be printed in time")
    }
}

/// The provider file that a line of the introduction names.
fn provider_file(line: &str) -> Option<PathBuf> {
    let (file, _) = line.trim().strip_prefix("files ")?.split_once(" (")?;
    Some(PathBuf::from(file.trim()))
}

/// The name of the release in a line that reports a serving release.
fn serving(line: &str) -> Option<String> {
    assert!(!line.contains("refused"), "{line}");
    let (before, _) = line.split_once(" serves (")?;
    before.rsplit(' ').nth(1).map(str::to_owned)
}

#[tokio::test]
async fn a_component_with_another_name_and_fewer_interfaces_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (file, beside) = (folder.path().join("provider.wasm"), folder.path().join("next"));
    fs::copy(built("simcloud"), &file).unwrap();
    let mut dev = Dev::start(&file);
    assert_eq!(dev.until(serving).await, "simcloud");
    fs::copy(built("probe-fuel"), &beside).unwrap();
    fs::rename(&beside, &file).unwrap();
    assert_eq!(dev.until(serving).await, "fuel");
}

#[tokio::test]
async fn a_cloud_config_is_the_providers_and_an_edit_of_the_provider_file_has_its_effect() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cloud.conf");
    fs::write(&config, "[LoadBalancer]\npool = nonsense\n").unwrap();
    let mut dev = Dev::start_with(&built("dummy"), &["--cloud-config".as_ref(), config.as_ref()]);
    let file = dev.until(provider_file).await;
    let refused = dev.until(|line| line.contains("refused").then(|| line.to_owned())).await;
    assert!(refused.contains("LoadBalancer.pool"), "{refused}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("pool = nonsense"), "{text}");
    fs::write(&file, text.replace("pool = nonsense", "pool = 10.0.0.0/24")).unwrap();
    assert_eq!(dev.until(|line| if line.contains("refused") { None } else { serving(line) }).await, "dummy");
}

#[tokio::test]
async fn after_every_terminating_signal_the_temporary_files_are_deleted() {
    for signal in ["INT", "TERM", "HUP"] {
        let mut dev = Dev::start(&built("simcloud"));
        let file = dev.until(provider_file).await;
        let folder = file.parent().unwrap();
        assert!(folder.join("token").is_file());
        let pid = dev.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().await.unwrap().success());
        let status = timeout(PATIENCE, dev.process.wait()).await.expect("the process should end").unwrap();
        assert_eq!((status.code(), folder.exists()), (Some(0), false), "SIG{signal}");
    }
}

/// Each call of the provider whose line contains both texts.
fn call<'a>(function: &'a str, text: &'a str) -> impl FnMut(&str) -> Option<()> + 'a {
    move |line| (line.contains(function) && line.contains(text)).then_some(())
}

/// Regression: there was neither egress nor a credential, and an edit had no effect.
#[tokio::test]
async fn a_provider_file_has_egress_and_credentials_and_its_edits_take_effect() {
    let cloud = SimCloud::new(SimOptions::isolated());
    cloud.add_instance("node-1", "zone-a").unwrap();
    let server = cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::copy(built("simcloud"), path("provider.wasm")).unwrap();
    let text = simcloud::provider_file(&server.url);
    let rule = format!("rules: [{{origins: [\"{}\"]}}]", server.url);
    assert!(text.contains(&rule), "{text}");
    let no_egress = format!("{}  allowUnmetEgress: true\n", text.replace(&rule, "rules: []"));
    fs::write(path("providers.yaml"), &no_egress).unwrap();
    fs::write(path("token"), "wrong-token").unwrap();
    let file = path("providers.yaml");
    let mut dev = Dev::spawn(&["--provider-file".as_ref(), file.as_os_str()]);
    dev.until(call("instances.describe", "no rule allows origin")).await;
    assert_eq!(cloud.requests().len(), 0, "a request left the sandbox");
    fs::write(path("providers.yaml"), text).unwrap();
    dev.until(call("instances.describe", "status 401")).await;
    fs::write(path("token"), &server.token).unwrap();
    dev.until(call("instances.describe", "ok")).await;
}

/// The words of the line that begins with this name.
fn entry<'a>(name: &'a str) -> impl FnMut(&str) -> Option<Vec<String>> + 'a {
    move |line| Some(line.trim().strip_prefix(name)?.split_whitespace().map(str::to_owned).collect())
}

#[tokio::test]
async fn without_a_manager_the_nodes_wait_until_the_printed_command_runs_one() {
    let mut dev = Dev::spawn(&["--no-manager".as_ref()]);
    let kubeconfig = dev.until(entry("export KUBECONFIG=")).await.remove(0);
    let (command, status) = (dev.until(entry("skysail ")).await, dev.until(entry("skysail ")).await);
    let config = Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let nodes: Api<Node> = Api::all(Client::try_from(config).unwrap());
    let node = until("the node", async || nodes.get_opt("node-1").await.unwrap()).await;
    let is_tainted = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
    assert!(is_tainted(&node), "a manager runs");
    let port = ports::free().unwrap();
    let mut manager = Command::new(SKYSAIL);
    manager.args(&command).arg(format!("--secure-port={port}")).env("KUBECONFIG", &kubeconfig).kill_on_drop(true);
    let _manager = manager.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let initialised = async || nodes.get("node-1").await.ok().filter(|node| !is_tainted(node));
    until("the initialised node", initialised).await;
    let status: Vec<String> = status.iter().map(|word| word.replace("10258", &port.to_string())).collect();
    let page = Command::new(SKYSAIL).args(&status).output().await.unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.starts_with("Provider dev: ready\n") && page.contains("instances.describe"), "{page}");
}
