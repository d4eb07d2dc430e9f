//! Tests of `skysail run` as a process, with the in-memory Kubernetes API and a provider file that
//! changes.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Event, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use skysail_dev::api::{ApiOptions, ApiServer, Fault, RequestInfo, Serving};
use skysail_test_support::ports;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use crate::program::{PATIENCE, SKYSAIL, built, until};

/// A provider without a cloud, with a class and a pool of addresses.
fn provider(name: &str, class: &str, pool: &str) -> String {
    format!(
        "apiVersion: skysail.dev/v1alpha1\nkind: Provider\nmetadata: {{name: {name}}}\nspec:\n  source: {{file: {name}.wasm}}\n  \
         loadBalancerClasses: [{class}]\n  config: \"[LoadBalancer]\\npool = {pool}\\n\"\n"
    )
}

/// A manager and its cluster.
struct Run {
    folder: TempDir,
    client: Client,
    admin: String,
    log: Lines<BufReader<ChildStderr>>,
    _process: Child,
    _api: Serving,
}

impl Run {
    async fn start(providers: &str) -> Self {
        Self::start_with(ApiServer::new(&ApiOptions::default()), providers, &[]).await
    }

    async fn start_with(api: Arc<ApiServer>, providers: &str, args: &[&str]) -> Self {
        let serving = api.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, component) in [("a", "dummy"), ("b", "dummy"), ("trapping", "probe-regression")] {
            fs::copy(built(component), path(&format!("{name}.wasm"))).unwrap();
        }
        fs::write(path("providers.yaml"), providers).unwrap();
        fs::write(path("kubeconfig"), ApiServer::kubeconfig_yaml(&serving.url())).unwrap();
        let port = ports::free().unwrap();
        let mut command = Command::new(SKYSAIL);
        command.arg("run").arg("--leader-elect=false").arg("--bind-address=127.0.0.1");
        command.arg(format!("--secure-port={port}")).args(args);
        command.arg("--authorization-always-allow-paths=/healthz,/livez,/readyz,/providers");
        command.arg("--provider-file").arg(path("providers.yaml")).arg("--kubeconfig").arg(path("kubeconfig"));
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap()).lines();
        let admin = format!("https://127.0.0.1:{port}");
        Self { folder, client: api.client(), admin, log, _process: process, _api: serving }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, providers: &str) {
        fs::write(self.path("providers.yaml"), providers).unwrap();
    }

    /// Waits for the next log line that contains this text.
    async fn says(&mut self, part: &str) -> String {
        self.says_all(&[part]).await
    }

    /// Waits until the log has contained all of these texts, in any order; returns the last line.
    async fn says_all(&mut self, parts: &[&str]) -> String {
        let mut missing = parts.to_vec();
        let read = async {
            loop {
                let line = self.log.next_line().await.unwrap().expect("the manager should run on");
                missing.retain(|part| !line.contains(part));
                if missing.is_empty() {
                    return line;
                }
            }
        };
        timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("the log should contain {parts:?}"))
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn add_service(&self, name: &str, class: &str) {
        let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": class, "ports": [{ "port": 80 }] });
        let service = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
        self.services().create(&PostParams::default(), &service).await.unwrap();
    }

    /// Waits for the address of a Service's load balancer.
    async fn address(&self, name: &str) -> String {
        let address = async || {
            let status = self.services().get(name).await.unwrap().status?;
            status.load_balancer?.ingress?.into_iter().next()?.ip
        };
        until("the address of the load balancer", address).await
    }

    async fn event(&self, reason: &str) -> String {
        let message = async || {
            let events: Api<Event> = Api::all(self.client.clone());
            let events = events.list(&ListParams::default()).await.unwrap().items;
            events.into_iter().find(|event| event.reason.as_deref() == Some(reason))?.message
        };
        until(reason, message).await
    }

    async fn ask(&self, path: &str) -> (u16, String) {
        // All tests of this process share the provider: only the first installation succeeds.
        drop(rustls::crypto::ring::default_provider().install_default());
        // The manager's certificate is self-signed.
        let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().unwrap();
        let answer = client.get(format!("{}/{path}", self.admin)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

#[tokio::test]
async fn a_cloud_config_that_one_component_refuses_does_not_affect_other_providers() {
    let (a, b) = (provider("a", "old.example/lb", "192.0.2.0/24"), provider("b", "b.example/lb", "203.0.113.0/24"));
    let mut run = Run::start(&format!("{a}---\n{b}")).await;
    run.add_service("kept", "old.example/lb").await;
    assert!(run.address("kept").await.starts_with("192.0.2."));
    // The controllers do not wait for a component that compiles for long on a busy machine.
    run.add_service("early", "b.example/lb").await;
    assert!(run.address("early").await.starts_with("203.0.113."));

    let moved = a.replace("old.example", "new.example");
    run.write(&format!("{moved}---\n{}", provider("b", "b.example/lb", "nonsense")));
    let line = run.says("keeps its old cloud-config").await;
    assert!(line.contains("provider.name=b") && line.contains("ConfigRefused"), "{line}");
    run.add_service("other", "b.example/lb").await;
    assert!(run.address("other").await.starts_with("203.0.113."), "provider b does not serve with its old pool");

    run.add_service("late", "new.example/lb").await;
    assert!(run.address("late").await.starts_with("192.0.2."), "the controllers do not know the new class");
    assert!(run.event("UnclaimedLoadBalancer").await.contains("old.example/lb"));
    run.services().delete("kept", &DeleteParams::default()).await.unwrap();
    let gone = async || run.services().get_opt("kept").await.unwrap().is_none().then_some(());
    until("the end of the Service", gone).await;
}

#[tokio::test]
async fn a_changed_path_to_an_invalid_component_leaves_the_provider_serving() {
    let a = provider("a", "a.example/lb", "192.0.2.0/24");
    let mut run = Run::start(&a).await;
    run.says("release active").await;
    fs::write(run.path("junk.wasm"), "junk").unwrap();
    run.write(&a.replace("a.wasm", "junk.wasm"));
    run.says("release refused").await;
    run.add_service("web", "a.example/lb").await;
    assert!(run.address("web").await.starts_with("192.0.2."));
    let ready = async || (run.ask("readyz").await == (200, "ok".to_owned())).then_some(());
    until("the end of the first lists", ready).await;
}

#[tokio::test]
async fn readyz_fails_and_the_log_names_the_missing_component() {
    let mut run = Run::start(&provider("c", "c.example/lb", "192.0.2.0/24")).await;
    run.says_all(&["the source has no component", "serving HTTPS"]).await;
    let listed = async || Some(run.ask("readyz").await).filter(|(_, text)| text.contains("[+]watches ok"));
    let withheld = "[-]provider/c failed: reason withheld\n[+]permissions ok\n[+]watches ok\nreadyz check failed\n";
    assert_eq!(until("the first lists of the watches", listed).await, (500, withheld.to_owned()));
    let line = run.says("/readyz fails").await;
    assert!(line.contains("provider/c: no release serves: file ") && line.contains("c.wasm is missing"), "{line}");
}

/// The older provider keeps the class, and the younger one works without it.
#[tokio::test]
async fn a_claim_that_an_older_provider_has_shows_in_readyz_and_status_and_fails_neither() {
    let (a, b) = (provider("a", "x.example/lb", "192.0.2.0/24"), provider("b", "x.example/lb", "203.0.113.0/24"));
    let run = Run::start(&format!("{a}---\n{b}")).await;
    run.add_service("web", "x.example/lb").await;
    assert!(run.address("web").await.starts_with("192.0.2."), "the younger provider has the class");
    let is_noted = |(code, text): &(u16, String)| *code == 200 && text.contains("degraded");
    let noted = async || Some(run.ask("readyz?verbose").await).filter(is_noted);
    let text = "[+]provider/a ok\n[+]provider/b ok: degraded (ClaimTaken)\n[+]permissions ok\n[+]watches ok\n\
                readyz check passed\n";
    assert_eq!(until("the note about b", noted).await, (200, text.to_owned()));
    assert_eq!(run.ask("readyz").await, (200, "ok".to_owned()));

    let status = ["status", "b", "--insecure-skip-tls-verify", "--server", &run.admin];
    let page = Command::new(SKYSAIL).args(status).output().await.unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    let problem = "Provider b: ready, but degraded\n  problem     ClaimTaken: The provider b claims classes, schemes or \
                   prefixes that an older provider has: the older provider a has the class \"x.example/lb\"";
    assert!(page.starts_with(problem), "{page}");
}

/// The list of Services fails, as on an API server that is overloaded.
#[tokio::test]
async fn livez_watches_threads_controllers_and_first_lists_and_readyz_fails_before_it() {
    let api = ApiServer::new(&ApiOptions::default());
    api.set_faults(Some(Arc::new(|request: &RequestInfo| match (request.verb, &*request.resource) {
        ("list", "services") => Fault::too_many_requests(1),
        _ => Fault::None,
    })));
    let mut run = Run::start_with(api, &provider("a", "a.example/lb", "192.0.2.0/24"), &[]).await;
    run.says("serving HTTPS").await;
    // The component may still compile on a busy machine.
    let is_missing = |(_, text): &(u16, String)| text.contains("[+]provider/a") && text.contains("[-]watches");
    let missing = async || Some(run.ask("readyz").await).filter(is_missing);
    let text = "[+]provider/a ok\n[+]permissions ok\n[-]watches failed: reason withheld\nreadyz check failed\n";
    assert_eq!(until("the missing list", missing).await, (500, text.to_owned()));
    let text = "[+]threads ok\n[+]controllers ok\n[+]watches ok\nlivez check passed\n";
    assert_eq!(run.ask("livez?verbose").await, (200, text.to_owned()));
}

/// Outside of a pod and without --authorization-kubeconfig, only public paths are served.
#[tokio::test]
async fn i3_health_is_public_and_metrics_are_not() {
    let mut run = Run::start(&provider("a", "a.example/lb", "192.0.2.0/24")).await;
    run.says("serving HTTPS").await;
    assert_eq!(run.ask("healthz").await, (200, "ok".to_owned()));
    let (status, text) = run.ask("metrics").await;
    assert_eq!(status, 403);
    assert!(text.contains("User \\\"system:anonymous\\\" cannot get path \\\"/metrics\\\""), "{text}");
}

/// A guest panics: an author of providers finds the place without the log.
#[tokio::test]
async fn the_text_and_the_place_of_a_panic_are_in_the_event_and_in_the_status() {
    let file = provider("trapping", "a.example/lb", "192.0.2.0/24");
    let mut run = Run::start(&file).await;
    run.says("release active").await;
    run.add_service("web", "a.example/lb").await;
    let panic = "the guest trapped: panicked at guests/probes/regression/src/lib.rs:43:5: a release regresses";
    let event = run.event("SyncLoadBalancerFailed").await;
    let begin = format!("Error syncing load balancer: failed to ensure load balancer: {panic}");
    assert!(event.starts_with(&begin), "{event}");
    let shown = async || {
        let mut status = Command::new(SKYSAIL);
        status.args(["status", "--server", &run.admin, "--insecure-skip-tls-verify"]);
        let output = status.output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap().lines().find(|line| line.contains(panic)).map(str::to_owned)
    };
    let line = until("the panic in the status", shown).await;
    assert!(line.contains("load-balancers.ensure"), "{line}");
}

/// A recording of a failure in production is a test of the next release.
#[tokio::test]
async fn failed_calls_are_recorded_where_the_operator_wants_it_and_replayed() {
    let recordings = tempfile::tempdir().unwrap();
    let args = ["--record-failures", recordings.path().to_str().unwrap(), "--redact", "shop-[0-9]"];
    let file = provider("trapping", "a.example/lb", "192.0.2.0/24");
    let mut run = Run::start_with(ApiServer::new(&ApiOptions::default()), &file, &args).await;
    run.says("release active").await;
    run.add_service("shop-1", "a.example/lb").await;
    let folder = recordings.path().join("trapping");
    let recording = until("a recording", async || fs::read_dir(&folder).ok()?.next()?.ok()).await.path();
    assert!(recording.ends_with("000001-load-balancers.ensure.json"), "{}", recording.display());
    let text = fs::read_to_string(&recording).unwrap();
    assert!(text.contains("the guest trapped: panicked at") && !text.contains("shop-1"), "{text}");
    let mut replay = Command::new(SKYSAIL);
    replay.arg("replay").arg(&recording).arg("--component").arg(run.path("trapping.wasm"));
    let output = replay.output().await.unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, "000001-load-balancers.ensure.json: load-balancers.ensure: equal\n", "{:?}", output.stderr);
    let mut replay = Command::new(SKYSAIL);
    replay.arg("replay").arg(recordings.path()).arg("--component").arg(run.path("trapping.wasm"));
    let error = String::from_utf8(replay.output().await.unwrap().stderr).unwrap();
    assert!(error.contains("name the folder of one provider in it: trapping"), "{error}");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o077;
    assert_eq!((mode(&folder), mode(&recording)), (0, 0), "the answers of a cloud are nobody else's");
}

/// Every call of a manager is a test of the next release, also one that succeeded.
#[tokio::test]
async fn all_calls_are_recorded_where_the_operator_wants_it_and_replayed() {
    let recordings = tempfile::tempdir().unwrap();
    let args = ["--record", recordings.path().to_str().unwrap()];
    let file = provider("trapping", "a.example/lb", "192.0.2.0/24");
    let mut run = Run::start_with(ApiServer::new(&ApiOptions::default()), &file, &args).await;
    run.says("release active").await;
    run.add_service("shop-1", "a.example/lb").await;
    let ensure = async || {
        let names =
            fs::read_dir(recordings.path()).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.into_iter().find(|name| name.ends_with("-load-balancers.ensure.json"))
    };
    until("the recording of a failed call", ensure).await;
    let mut replay = Command::new(SKYSAIL);
    replay.arg("replay").arg(recordings.path()).arg("--component").arg(run.path("trapping.wasm"));
    let output = replay.output().await.unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("000001-identity.describe.json: identity.describe: equal\n"), "{shown}");
    assert!(output.status.success(), "{shown} {:?}", output.stderr);
}

/// The file is checked before the manager connects to a cluster.
#[tokio::test]
async fn an_invalid_provider_file_ends_the_start_and_the_error_names_the_place() {
    let good = provider("a", "a.example/lb", "192.0.2.0/24");
    let cases = [
        (format!("{good}  egres: {{}}\n"), 8, "spec.egres: "),
        (format!("{good}  egress: {{rules: [{{origins: [ftp://x]}}]}}\n"), 8, "spec.egress.rules[0].origins[0]: "),
        (
            format!("{good}  credentials: {{api: {{origins: [\"https://a.b\"], bearer: {{file: none}}}}}}\n"),
            8,
            "spec.credentials.api.bearer.file: ",
        ),
        (
            format!("{good}  default: true\n---\n{good}  default: true\n").replacen("name: a}", "name: z}", 1),
            17,
            "spec.default: ",
        ),
        (format!("{good}---\n{good}"), 11, "metadata.name: "),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("providers.yaml");
    for (text, line, place) in cases {
        fs::write(&file, text).unwrap();
        let output = Command::new(SKYSAIL)
            .args(["run", "--leader-elect=false", "--provider-file"])
            .arg(&file)
            .output()
            .await
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        let begin = format!("skysail: {}:{line}: provider \"a\": {place}", file.display());
        assert!(error.starts_with(&begin), "{error} should begin with {begin}");
        assert!(
            !place.contains("file") || error.contains(&folder.path().join("none").display().to_string()),
            "{error}"
        );
    }
}

/// Starts a manager in this folder with this kubeconfig, and without a wait.
fn spawn(folder: &Path, kubeconfig: &str) -> Child {
    let path = |name: &str| folder.join(name);
    fs::copy(built("dummy"), path("a.wasm")).unwrap();
    fs::write(path("providers.yaml"), provider("a", "a.example/lb", "192.0.2.0/24")).unwrap();
    fs::write(path("kubeconfig"), kubeconfig).unwrap();
    let mut command = Command::new(SKYSAIL);
    command.arg("run").arg("--provider-file").arg(path("providers.yaml")).arg("--kubeconfig").arg(path("kubeconfig"));
    command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

/// Sends SIGTERM to the manager and checks that it ends with success.
async fn ends_with_success(mut manager: Child) {
    kill_process(pid(manager.id().unwrap()), Signal::TERM).unwrap();
    let status = timeout(PATIENCE, manager.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

#[tokio::test]
async fn a_sigterm_during_the_start_ends_the_manager_with_success() {
    // An API server that accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let manager = spawn(folder.path(), &ApiServer::kubeconfig_yaml(&url));
    let asked = tokio::task::spawn_blocking(move || silent.accept());
    let _open = timeout(PATIENCE, asked).await.unwrap().unwrap().unwrap();
    ends_with_success(manager).await;
}

/// The library kube runs the plugin and waits for its end.
#[tokio::test]
async fn a_sigterm_while_the_kubeconfigs_exec_plugin_waits_ends_the_manager_with_success() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let script = format!("echo $$ >{0}.new && mv {0}.new {0} && exec sleep 1000", started.display());
    let plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", script],
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "http://192.0.2.1" } }],
        "users": [{ "name": "a", "user": { "exec": plugin } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
    });
    let manager = spawn(folder.path(), &kubeconfig.to_string());
    let plugin = until("the plugin", async || fs::read_to_string(&started).ok()).await;
    ends_with_success(manager).await;
    kill_process(pid(plugin.trim().parse().unwrap()), Signal::KILL).unwrap();
}
