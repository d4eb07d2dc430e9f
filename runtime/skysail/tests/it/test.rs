//! Tests of `skysail test`: providers that pass, providers and clouds that are broken, recordings,
//! and what the command leaves in the cloud.

use std::{
    ffi::OsStr,
    fs,
    process::{Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use skysail_dev::cloud::Knobs;
use tokio::process::{Child, Command};

use crate::{
    program::{SKYSAIL, built, until},
    replay::{Author, nodes, service},
};

impl Author {
    /// `--node` of the machines.
    fn machines(&self) -> String {
        let machines = self.cloud.snapshot().instances;
        let nodes = machines.iter().map(|machine| format!("{}=simcloud://{}", machine.name, machine.id));
        nodes.collect::<Vec<_>>().join(",")
    }

    /// The arguments of a run against the cloud.
    fn against_cloud(&self, component: &str, more: &[&str]) -> Vec<String> {
        let (component, machines) = (built(component).display().to_string(), self.machines());
        let args = ["test", &component, "--provider-file", "providers.yaml", "--node", &machines, "--yes"];
        args.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
    }

    /// Runs the command, and returns its exit code, its report and standard error.
    async fn test(&self, component: &str, more: &[&str]) -> (Option<i32>, Value, String) {
        let args = self.against_cloud(component, &[&["--output", "json"], more].concat());
        let (code, stdout, stderr) = self.skysail(&refs(&args)).await;
        (code, serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}")), stderr)
    }

    /// Starts the command.
    fn start(&self, component: &str, more: &[&str]) -> Child {
        let mut command = Command::new(SKYSAIL);
        command.args(self.against_cloud(component, more)).current_dir(self.path(".")).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A cloud in which a load balancer takes very long, and the command when it waits for one.
    async fn start_and_wait_for_a_load_balancer(&self) -> Child {
        self.cloud.set_knobs(Knobs { provisioning_ms: 3_600_000, ..Knobs::default() }).unwrap();
        let child = self.start("simcloud", &[]);
        until("a load balancer", async || (!self.cloud.snapshot().has_no_load_balancers()).then_some(())).await;
        child
    }
}

fn refs(args: &[String]) -> Vec<&dyn AsRef<OsStr>> {
    args.iter().map(|arg| arg as &dyn AsRef<OsStr>).collect()
}

/// The cases with this outcome: interface, name and reason.
fn cases(report: &Value, outcome: &str) -> Vec<(String, String, String)> {
    let text = |case: &Value, field: &str| case[field].as_str().unwrap_or_default().to_owned();
    let all = report["cases"].as_array().unwrap().iter().filter(|case| case["outcome"] == outcome);
    all.map(|case| (text(case, "subject"), text(case, "name"), text(case, "reason"))).collect()
}

async fn output(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().await.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn the_provider_of_the_simulated_cloud_passes_and_leaves_nothing() {
    let author = Author::new().await;
    let (code, report, stderr) = author.test("simcloud", &["--fault-requests", "20"]).await;
    assert_eq!((code, cases(&report, "failed")), (Some(0), Vec::new()), "{report:#}{stderr}");
    let not_tested = cases(&report, "notTested");
    assert!(not_tested.iter().all(|(interface, ..)| interface == "persistent-volume-labels"), "{not_tested:?}");
    assert!(report["passed"].as_u64().unwrap() >= 18, "{report:#}");
    let snapshot = author.cloud.snapshot();
    assert!(snapshot.has_no_load_balancers() && snapshot.routes.is_empty(), "{snapshot:?}");
    let limits = report["limits"].as_array().unwrap();
    let of = |name: &str| limits.iter().find(|limit| limit["limit"] == name).unwrap();
    assert!(of("fuel")["used"].as_u64().unwrap() > 0 && of("httpResponseBytes")["used"].as_u64().unwrap() > 0);
    assert!(stderr.contains("case 1 of "), "{stderr}");
}

#[tokio::test]
async fn providers_in_go_and_javascript_pass() {
    for component in ["simcloud-go", "simcloud-js"] {
        let author = Author::new().await;
        let (code, report, stderr) = author.test(component, &["--fault-requests", "2"]).await;
        assert_eq!((code, cases(&report, "failed")), (Some(0), Vec::new()), "{component}: {report:#}{stderr}");
        assert!(author.cloud.snapshot().has_no_load_balancers(), "{component}");
    }
}

#[tokio::test]
async fn an_interface_that_the_component_does_not_export_is_named_as_not_tested() {
    let author = Author::new().await;
    let (code, report, stderr) = author.test("simcloud-basic", &["--fault-requests", "0"]).await;
    assert_eq!(code, Some(0), "{report:#}{stderr}");
    let not_tested = cases(&report, "notTested");
    let why = "the component does not export the interface".to_owned();
    assert!(
        not_tested.contains(&("load-balancer-inventory".to_owned(), "all cases".to_owned(), why)),
        "{not_tested:?}"
    );
    assert!(not_tested.iter().any(|(_, _, why)| why == "--fault-requests is 0"), "{not_tested:?}");
}

/// A provider that invents machines and load balancers.
#[tokio::test]
async fn a_provider_that_answers_without_its_cloud_fails() {
    let author = Author::new().await;
    fs::write(author.path("empty.conf"), "").unwrap();
    let (code, report, stderr) = author.test("dummy", &["--cloud-config", "empty.conf"]).await;
    assert_eq!(code, Some(1), "{report:#}");
    let failed = cases(&report, "failed");
    let reason = |name: &str| failed.iter().find(|(_, case, _)| case == name).map(|(_, _, why)| why.as_str());
    let known = reason("known machines are described").unwrap();
    assert!(known.contains("was described as \"dummy://node-1\""), "{known}");
    let never = reason("a machine that never was is not found").unwrap();
    assert!(
        never.contains("belongs to another provider") || never.contains("never existed, and `describe` described"),
        "{never}"
    );
    let twice = reason("a second ensure changes nothing").unwrap();
    assert!(twice.starts_with("`get` returned a load balancer before the first `ensure`"), "{twice}");
    let update = reason("update changes the backends").unwrap();
    assert!(update.starts_with("`update` without a load balancer returned ok"), "{update}");
    assert!(stderr.contains("dummy.wasm: ") && stderr.contains(" failed, "), "{stderr}");
}

#[tokio::test]
async fn a_provider_that_traps_fails_with_the_reason_of_the_trap() {
    let author = Author::new().await;
    let (code, report, _) = author.test("probe-regression", &[]).await;
    assert_eq!(code, Some(1), "{report:#}");
    let failed = cases(&report, "failed");
    let (_, _, why) = failed.iter().find(|(_, name, _)| name == "a second ensure changes nothing").unwrap();
    assert!(why.starts_with("`get` returned Trapped: ") && why.contains("a release regresses"), "{why}");
}

#[tokio::test]
async fn what_cannot_be_deleted_is_named() {
    let author = Author::new().await;
    let child = author.start_and_wait_for_a_load_balancer().await;
    author.cloud.expire_token();
    let (code, stdout, stderr) = output(child).await;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let left = "LEFT IN THE CLOUD: the load balancer of the Service skysail-test/skysail-test-twice with the UID ";
    assert!(stdout.contains(left) && stdout.contains("`ensure-deleted` returned Denied"), "{stdout}");
    assert!(stderr.contains("what is left in the cloud is named above"), "{stderr}");
}

#[tokio::test]
async fn an_interrupted_run_deletes_what_it_created() {
    let author = Author::new().await;
    let child = author.start_and_wait_for_a_load_balancer().await;
    let id = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).unwrap();
    kill_process(id, Signal::INT).unwrap();
    let (code, stdout, stderr) = output(child).await;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("the run was stopped by SIGINT") && !stdout.contains("LEFT IN THE CLOUD"), "{stdout}");
    assert!(author.cloud.snapshot().has_no_load_balancers(), "{stdout}{stderr}");
}

#[tokio::test]
async fn a_recorded_call_is_a_case_that_another_component_fails() {
    let author = Author::new().await;
    author.record("simcloud", "load-balancers.ensure", &json!({"service": service(), "nodes": nodes()}), &[]).await;
    let test = async |component: &str| {
        let component = built(component);
        let args: [&dyn AsRef<OsStr>; 6] =
            [&"test", &component, &"--recordings", &"recordings", &"--junit", &"junit.xml"];
        author.skysail(&args).await
    };
    let (code, stdout, stderr) = test("simcloud").await;
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("\n  passed      000001-load-balancers.ensure.json\n"), "{stdout}");
    assert!(stdout.ends_with("1 passed, 0 failed, 0 not tested\n"), "{stdout}");
    let (code, stdout, stderr) = test("dummy").await;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stdout.contains("\n  FAILED      000001-load-balancers.ensure.json\n"), "{stdout}");
    assert!(stdout.contains("/v1/") && stdout.contains(", which only the recording has\n"), "{stdout}");
    let junit = fs::read_to_string(author.path("junit.xml")).unwrap();
    assert!(junit.contains("<testsuites tests=\"1\" failures=\"1\""), "{junit}");
}

#[tokio::test]
async fn a_recorded_call_of_an_interface_that_the_component_lacks_is_a_failed_case() {
    let author = Author::new().await;
    author.record("simcloud", "routes.list", &json!({}), &[]).await;
    let component = built("dummy");
    let args: [&dyn AsRef<OsStr>; 4] = [&"test", &component, &"--recordings", &"recordings"];
    let (code, stdout, stderr) = author.skysail(&args).await;
    assert_eq!(code, Some(1), "{stderr}");
    let case = "\nroutes.list\n  FAILED      000001-routes.list.json\n";
    assert!(stdout.contains(case) && stdout.contains("dummy.wasm does not export routes; "), "{stdout}");
}

#[tokio::test]
async fn wrong_input_is_refused_with_a_remedy_before_anything_is_sent() {
    let author = Author::new().await;
    let file = author.record("simcloud", "identity.describe", &json!({}), &[]).await;
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(author.path("cut.json"), &whole[..whole.len() / 2]).unwrap();
    fs::write(author.path("later.json"), whole.replace("\"contract\": \"0.1.0\"", "\"contract\": \"9.0.0\"")).unwrap();
    fs::write(author.path("pod.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n").unwrap();
    let (component, machines) = (built("simcloud").display().to_string(), author.machines());
    let file = ["--provider-file", "providers.yaml"];
    let with_node = [&file[..], &["--node", &machines]].concat();
    let cases: [(&[&str], &str); 8] = [
        (&["--recordings", "cut.json"], "the file ends in the middle of the recording; record the call again"),
        (&["--recordings", "later.json"], "it is a call of the contract 9.0.0, and this version"),
        (&["--recordings", "absent"], "absent does not exist; name a recording"),
        (&[], "nothing to test with; give --recordings FOLDER, or --provider-file FILE"),
        (&file, "no machine is named; give machines that exist in the cloud with --node NAME=PROVIDER-ID"),
        (&[&with_node[..], &["--service", "pod.yaml"]].concat(), "pod.yaml: it is a Pod and no Service of v1; write a"),
        (&[&file[..], &["--node", "node-1"]].concat(), "it is not a name and a provider ID; write node-1=cloud://17"),
        (&with_node, "standard input is no terminal, so give --yes if you want that"),
    ];
    for (args, reason) in cases {
        let all: Vec<String> = ["test", &component].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        let (code, stdout, stderr) = author.skysail(&refs(&all)).await;
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
    assert_eq!(author.cloud.requests_count(), 0, "no request was sent");
}
