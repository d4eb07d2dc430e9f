//! Tests of recorded calls: `skysail call --record`, then `skysail replay`.

use std::{
    ffi::OsStr,
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Output, Stdio},
};

use serde_json::{Value, json};
use skysail_dev::cloud::{SimCloud, SimOptions, SimServer};
use skysail_test_support::simcloud;
use tempfile::TempDir;
use tokio::process::Command;

use crate::program::{SKYSAIL, built};

/// A simulated cloud with two machines, and a folder with the provider file for it.
pub(crate) struct Author {
    pub(crate) cloud: SimCloud,
    pub(crate) server: SimServer,
    folder: TempDir,
}

/// The nodes of the machines, and one without a machine.
pub(crate) fn nodes() -> Value {
    let node = |name| json!({"metadata": {"name": name, "uid": name}});
    json!(["node-1", "node-2", "node-3"].map(node))
}

pub(crate) fn service() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
    })
}

impl Author {
    pub(crate) async fn new() -> Self {
        let cloud = SimCloud::new(SimOptions::isolated());
        for name in ["node-1", "node-2"] {
            cloud.add_instance(name, "zone-a").unwrap();
        }
        let server = cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("providers.yaml"), simcloud::provider_file(&server.url)).unwrap();
        fs::write(folder.path().join("token"), &server.token).unwrap();
        Self { cloud, server, folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, standard output, standard error.
    pub(crate) async fn skysail(&self, args: &[&dyn AsRef<OsStr>]) -> (Option<i32>, String, String) {
        let mut command = Command::new(SKYSAIL);
        command.args(args.iter().map(|arg| (*arg).as_ref())).current_dir(self.folder.path()).stdin(Stdio::null());
        let Output { status, stdout, stderr } = command.output().await.unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    /// Calls a function of this component, which is recorded; returns the file.
    pub(crate) async fn record(&self, component: &str, function: &str, arguments: &Value, more: &[&str]) -> PathBuf {
        let (component, arguments) = (built(component), arguments.to_string());
        let mut args: Vec<&dyn AsRef<OsStr>> = vec![&"call", &component, &function, &"--json", &arguments];
        args.extend([&"--provider-file" as &dyn AsRef<OsStr>, &"providers.yaml", &"--record", &"recordings"]);
        args.extend(more.iter().map(|arg| arg as &dyn AsRef<OsStr>));
        let (code, _, stderr) = self.skysail(&args).await;
        assert_eq!(code, Some(0), "{stderr}");
        let files = fs::read_dir(self.path("recordings")).unwrap();
        files.map(|entry| entry.unwrap().path()).max().unwrap()
    }

    async fn replay(&self, recordings: &str, component: &str) -> (Option<i32>, String, String) {
        self.skysail(&[&"replay", &recordings, &"--component", &built(component)]).await
    }

    async fn compare(&self, component: &str) -> (Option<i32>, Vec<Value>) {
        let component = built(component);
        let args: [&dyn AsRef<OsStr>; 6] = [&"replay", &"recordings", &"--component", &component, &"--output", &"json"];
        let (code, stdout, stderr) = self.skysail(&args).await;
        (code, serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}")))
    }
}

#[tokio::test]
async fn a_replayed_call_of_the_same_component_is_equal_to_the_unit_of_fuel_and_reaches_no_cloud() {
    let author = Author::new().await;
    author.record("simcloud", "instances.describe", &json!({"nodes": nodes()}), &[]).await;
    author.record("simcloud", "load-balancers.ensure", &json!({"service": service(), "nodes": nodes()}), &[]).await;
    author.record("simcloud", "identity.describe", &json!({}), &[]).await;
    let requests = author.cloud.requests().len();
    let (code, calls) = author.compare("simcloud").await;
    assert_eq!(code, Some(0), "{calls:?}");
    let files: Vec<_> = calls.iter().map(|call| call["file"].as_str().unwrap()).collect();
    let names =
        ["000001-instances.describe.json", "000002-load-balancers.ensure.json", "000003-identity.describe.json"];
    assert_eq!(files, names);
    for call in &calls {
        assert_eq!((&call["equal"], &call["cost"]["recorded"]), (&json!(true), &call["cost"]["replayed"]), "{call}");
    }
    assert_eq!(author.cloud.requests().len(), requests, "a replayed call sends no request");
}

/// Components that take the time, random numbers and requests from WASI, too.
#[tokio::test]
async fn replayed_calls_of_components_in_go_and_javascript_are_equal() {
    for component in ["simcloud-go", "simcloud-js"] {
        let author = Author::new().await;
        let arguments = json!({"service": service(), "nodes": nodes()});
        author.record(component, "load-balancers.ensure", &arguments, &[]).await;
        let (code, stdout, stderr) = author.replay("recordings", component).await;
        assert_eq!(code, Some(0), "{component}: {stdout}{stderr}");
        assert!(stdout.starts_with("000001-load-balancers.ensure.json: load-balancers.ensure: equal\n"), "{stdout}");
    }
}

#[tokio::test]
async fn another_component_differs_in_its_requests_and_its_answer() {
    let author = Author::new().await;
    author.record("simcloud", "load-balancers.ensure", &json!({"service": service(), "nodes": nodes()}), &[]).await;
    let (code, stdout, stderr) = author.replay("recordings", "dummy").await;
    assert_eq!(code, Some(5), "{stdout}{stderr}");
    assert!(stdout.contains("load-balancers.ensure: different\n"), "{stdout}");
    assert!(stdout.contains(", which only the recording has\n") && stdout.contains("  ~ answer\n"), "{stdout}");
    assert!(stdout.contains("cost: fuel "), "{stdout}");
    assert!(stderr.contains("dummy.wasm: 1 of 1 calls differ"), "{stderr}");
}

#[tokio::test]
async fn a_request_that_the_recording_lacks_ends_the_call_with_its_name() {
    let author = Author::new().await;
    let file = author.record("simcloud", "instances.describe", &json!({"nodes": nodes()}), &[]).await;
    let mut recording: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let url = recording["requests"][0]["url"].as_str().unwrap().to_owned();
    recording["requests"] = json!([]);
    fs::write(&file, recording.to_string()).unwrap();
    let (code, stdout, _) = author.replay("recordings", "simcloud").await;
    assert_eq!(code, Some(5), "{stdout}");
    assert!(stdout.contains(&format!("+ GET {url}, which the recording lacks")), "{stdout}");
    let error = format!("the recording has no answer to GET {url}; record the call again with this component");
    assert!(stdout.contains(&error), "{stdout}");
}

/// The token is sent with each request, and the cloud-config repeats it by mistake.
#[tokio::test]
async fn neither_a_credential_nor_what_the_operator_redacts_is_in_a_recording() {
    let author = Author::new().await;
    let text = fs::read_to_string(author.path("providers.yaml")).unwrap();
    let endpoint = format!("endpoint = {}", author.server.url);
    let with_token = format!("{endpoint}\n    # {}", author.server.token);
    assert!(text.contains(&endpoint), "{text}");
    fs::write(author.path("providers.yaml"), text.replace(&endpoint, &with_token)).unwrap();
    let redact = ["--redact", "node-[12]", "--redact", "/*/ok/zone"];
    let file = author.record("simcloud", "instances.describe", &json!({"nodes": nodes()}), &redact).await;
    let recorded = fs::read_to_string(&file).unwrap();
    assert!(!recorded.contains(&author.server.token), "{recorded}");
    assert!(recorded.contains(r#""credential": "api""#) && recorded.contains("# [redacted]"), "{recorded}");
    assert!(!recorded.contains("node-1") && recorded.contains("node-3"), "{recorded}");
    let recording: Value = serde_json::from_str(&recorded).unwrap();
    assert_eq!(recording["redact"], json!(["node-[12]", "/*/ok/zone"]));
    assert_eq!(recording["answer"]["ok"][0]["ok"]["zone"], "redacted-3");
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused_with_a_remedy() {
    let author = Author::new().await;
    let file = author.record("simcloud", "identity.describe", &json!({}), &[]).await;
    let whole = fs::read_to_string(&file).unwrap();
    let empty = author.path("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(author.path("cut.json"), &whole[..whole.len() / 2]).unwrap();
    fs::write(author.path("later.json"), whole.replace("\"contract\": \"0.1.0\"", "\"contract\": \"9.0.0\"")).unwrap();
    for (recordings, reason) in [
        ("cut.json", "cut.json cannot be replayed: the file ends in the middle of the recording"),
        ("later.json", "later.json cannot be replayed: it is a call of the contract 9.0.0, and this version"),
        ("providers.yaml", "providers.yaml cannot be replayed: it is not a recording"),
        ("empty", "empty has no recording (.json); name a folder"),
        ("absent", "absent does not exist; name a recording"),
    ] {
        let (code, stdout, stderr) = author.replay(recordings, "simcloud").await;
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
    let args: [&dyn AsRef<OsStr>; 7] =
        [&"call", &built("dummy"), &"identity.describe", &"--record", &"recordings", &"--redact", &"("];
    let (code, _, stderr) = author.skysail(&args).await;
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("--redact: the rule \"(\" is not a regular expression: unclosed group"), "{stderr}");
}
