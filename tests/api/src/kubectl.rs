//! The real kubectl: a script of commands, its output made comparable, one snapshot for both
//! servers.

use std::{process::Stdio, time::Duration};

use expect_test::expect_file;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::env::Env;

/// Longest wait for a line of kubectl.
const PATIENCE: Duration = Duration::from_secs(120);

/// kubectl against one server; collects a transcript.
struct Session<'a> {
    env: &'a Env,
    kubeconfig: tempfile::NamedTempFile,
    transcript: String,
}

impl<'a> Session<'a> {
    fn new(env: &'a Env) -> Self {
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(kubeconfig.path(), &env.kubeconfig).unwrap();
        Self { env, kubeconfig, transcript: String::new() }
    }

    /// Runs kubectl with `arguments` in the test's namespace and adds what it printed.
    async fn run(&mut self, arguments: &str, input: &str) {
        let mut child = self.start(arguments);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let code = output.status.code().unwrap();
        self.add(arguments, &printed);
        if code != 0 {
            self.transcript.push_str(&format!("(exit {code})\n"));
        }
    }

    fn start(&self, arguments: &str) -> Child {
        Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig.path())
            .args(["--namespace", &self.env.ns])
            .args(arguments.split(' ').map(|a| a.replace("NODE", &self.env.ns)))
            .env("HOME", std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("these tests run the real kubectl; install kubectl (1.32 or newer) and put it on PATH")
    }

    fn add(&mut self, arguments: &str, printed: &str) {
        self.transcript.push_str(&format!("$ kubectl {arguments}\n{}", normalised(printed, &self.env.ns)));
    }
}

/// Replaces what differs between two clusters: addresses, ports, ages, times, uids, versions.
fn normalised(text: &str, ns: &str) -> String {
    let mut result = String::new();
    for line in text.lines().filter(|l| !l.contains("version difference between client")) {
        let indent = line.len() - line.trim_start().len();
        if line.starts_with("CreationTimestamp:") {
            result.push_str("CreationTimestamp: TIME\n");
            continue;
        }
        let words: Vec<String> = line.replace(ns, "NODE").split_whitespace().map(word).collect();
        result.push_str(&" ".repeat(indent));
        result.push_str(&words.join(" "));
        result.push('\n');
    }
    result
}

fn word(word: &str) -> String {
    let split = |c: char| matches!(c, ',' | '/' | ':' | '"' | '\'' | '(' | ')' | '[' | ']');
    if is_time(word.trim_matches('"')) {
        return "TIME".to_owned();
    }
    let mut result = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let end = rest.find(split).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        result.push_str(&piece(part));
        let mut chars = after.chars();
        result.extend(chars.next());
        rest = chars.as_str();
    }
    result
}

fn is_time(text: &str) -> bool {
    text.len() == 20 && text.ends_with('Z') && text.contains('T')
}

fn piece(part: &str) -> String {
    // `5s`, and from two minutes on `2m` or `2m5s`.
    let age = part.starts_with(|c: char| c.is_ascii_digit())
        && part.ends_with(['s', 'm', 'h'])
        && part.chars().all(|c| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h'));
    let cluster_ip =
        part.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| (96..=111).contains(&ip.octets()[1]) && ip.octets()[0] == 10);
    let node_port = part.parse::<u16>().is_ok_and(|p| (30000..=32767).contains(&p));
    let uid = part.len() == 36 && part.chars().filter(|c| *c == '-').count() == 4;
    match () {
        () if age => "AGE".into(),
        () if cluster_ip => "CLUSTERIP".into(),
        () if node_port => "NODEPORT".into(),
        () if uid => "UID".into(),
        () => part.into(),
    }
}

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {app: web}}\n\
    spec: {type: LoadBalancer, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}\n";

pub(crate) async fn kubectl_creates_gets_and_deletes(env: &Env) {
    let mut session = Session::new(env);
    session.run("create configmap settings --from-literal=a=1 --from-literal=b=2", "").await;
    session.run("create secret generic keys --from-literal=k=v", "").await;
    session.run("create -f -", SERVICE).await;
    session.run("create -f -", SERVICE).await;
    session.run("get configmap,secret,service", "").await;
    session.run("get service web -o wide", "").await;
    session.run("get service web -o name", "").await;
    session.run("get service web -o jsonpath={.spec.ports}", "").await;
    session.run("get service --selector app=web --show-labels", "").await;
    session.run("get service nope", "").await;
    session.run("get nonsense", "").await;
    session.run("get configmap settings -o jsonpath={.data}", "").await;
    session
        .run(
            "create -f -",
            "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {typo: 1, ports: [{port: 1}]}\n",
        )
        .await;
    session
        .run("create -f -", "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 0}]}\n")
        .await;
    session.run("delete service web --wait=true", "").await;
    session.run("delete configmap --all", "").await;
    session.run("get service,configmap", "").await;
    expect_file!["../snapshots/creates.txt"].assert_eq(&session.transcript);
}

pub(crate) async fn kubectl_applies_both_ways(env: &Env) {
    let mut session = Session::new(env);
    session.run("apply -f -", SERVICE).await;
    session.run("apply -f -", SERVICE).await;
    session.run("apply -f -", &SERVICE.replace("8080", "9090").replace(", labels: {app: web}", "")).await;
    session.run("get service web -o jsonpath={.spec.ports[0].targetPort},{.metadata.labels}", "").await;
    session.run("diff -f -", &SERVICE.replace(", labels: {app: web}", "").replace("8080", "9090")).await;
    session.run("apply --server-side -f -", &SERVICE.replace("name: web,", "name: other,")).await;
    session.run("apply --server-side -f -", &SERVICE.replace("name: web,", "name: other,")).await;
    let changed = SERVICE.replace("name: web,", "name: other,").replace("8080", "9090");
    session.run("apply --server-side --field-manager=somebody -f -", &changed).await;
    session.run("apply --server-side --field-manager=somebody --force-conflicts -f -", &changed).await;
    session.run("get service other -o jsonpath={.spec.ports[0].targetPort}", "").await;
    session.run("delete -f -", SERVICE).await;
    expect_file!["../snapshots/applies.txt"].assert_eq(&session.transcript);
}

async fn node(env: &Env) {
    let node = json!({"metadata": {"name": env.ns, "labels": {"kubernetes.io/hostname": "n", "node-role.kubernetes.io/worker": ""}},
        "spec": {"providerID": "sim://1"}, "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.10"}, {"type": "ExternalIP", "address": "198.51.100.10"}],
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "110"}, "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Test OS", "kernelVersion": "6.1", "containerRuntimeVersion": "x://1"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    env.post("/api/v1/nodes", &node).await.ok();
}

pub(crate) async fn kubectl_edits_labels_taints_and_waits(env: &Env) {
    let mut session = Session::new(env);
    node(env).await;
    session.run("get node NODE", "").await;
    session.run("get node NODE -o wide", "").await;
    session.run("label node NODE zone=a", "").await;
    session.run("annotate node NODE example.test/x=y", "").await;
    session.run("taint node NODE key=value:NoSchedule", "").await;
    session.run("taint node NODE key:NoSchedule-", "").await;
    session.run("cordon NODE", "").await;
    session.run("get node NODE", "").await;
    session.run("uncordon NODE", "").await;
    session.run("patch node NODE -p {\"spec\":{\"taints\":[{\"key\":\"k\",\"effect\":\"NoExecute\"}]}}", "").await;
    session.run("get node NODE -o jsonpath={.spec.taints},{.metadata.labels.zone}", "").await;
    session.run("wait --for=condition=Ready node/NODE --timeout=60s", "").await;
    session.run("create -f -", SERVICE).await;
    session
        .run(
            "patch service web --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/type\",\"value\":\"ClusterIP\"}]",
            "",
        )
        .await;
    session.run("get service web", "").await;
    session.run("delete node NODE", "").await;
    session.run("wait --for=delete node/NODE --timeout=60s", "").await;
    expect_file!["../snapshots/edits.txt"].assert_eq(&session.transcript);
}

pub(crate) async fn kubectl_describes_services_and_nodes(env: &Env) {
    let mut session = Session::new(env);
    node(env).await;
    session.run("create -f -", SERVICE).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    env.patch("merge", &env.core("services/web/status"), &status).await.ok();
    let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Service", "name": "web", "namespace": env.ns},
        "reason": "EnsuredLoadBalancer", "message": "Ensured load balancer", "type": "Normal", "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "service-controller"}});
    env.post(&env.core("events"), &event).await.ok();
    session.run("get service web", "").await;
    // A pass of the API server's own `ipallocator-repair-controller` that runs beside the creation
    // of a Service writes the Event ClusterIPNotAllocated.
    session.run("describe service web --show-events=false", "").await;
    session.run("describe node NODE", "").await;
    session.run("get events --field-selector=reason!=ClusterIPNotAllocated", "").await;
    session.run("get events --field-selector=reason!=ClusterIPNotAllocated -o wide", "").await;
    expect_file!["../snapshots/describes.txt"].assert_eq(&session.transcript);
}

pub(crate) async fn kubectl_asks_and_mistypes(env: &Env) {
    let mut session = Session::new(env);
    let unknown = "apiVersion: v1\nkind: Servise\nmetadata: {name: web}\n";
    session.run("create -f -", unknown).await;
    session.run("apply -f -", unknown).await;
    session.run("apply --server-side -f -", unknown).await;
    session.run("create -f -", &unknown.replace("v1", "apps/v9")).await;
    session.run("create -f -", &unknown.replace("v1", "example.test/v1")).await;
    session.run("auth can-i create services", "").await;
    session.run("auth can-i delete nodes --all-namespaces", "").await;
    session.run("auth can-i get /metrics", "").await;
    let review = json!({"spec": {"namespace": env.ns}});
    let rules = env.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review).await;
    let everything = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    assert!(rules.code == 201 && rules.body["status"]["resourceRules"].as_array().unwrap().contains(&everything));
    session.run("explain service.spec.type", "").await;
    session.run("explain service.spec.ports --recursive", "").await;
    session.run("explain node.spec.taints", "").await;
    session.run("explain service.spec.nothing", "").await;
    session.run("explain servise", "").await;
    expect_file!["../snapshots/asks.txt"].assert_eq(&session.transcript);
}

pub(crate) async fn kubectl_creates_what_it_sends_as_protobuf(env: &Env) {
    let mut session = Session::new(env);
    session.run("create deployment web --image=example.test/web:1 --replicas=2 --port=8080 -- serve --fast", "").await;
    session.run("get deployment web", "").await;
    session.run("get deployment web -o jsonpath={.spec}", "").await;
    session.run("create role reader --verb=get,list --resource=services,services/status --resource-name=web", "").await;
    session.run("get role reader -o jsonpath={.rules}", "").await;
    session
        .run("create rolebinding readers --role=reader --user=ann --group=ops --serviceaccount=NODE:default", "")
        .await;
    session.run("get rolebinding readers -o jsonpath={.roleRef},{.subjects}", "").await;
    session.run("create clusterrole NODE --verb=get --non-resource-url=/metrics", "").await;
    session.run("create clusterrolebinding NODE --clusterrole=NODE --user=ann", "").await;
    session.run("delete clusterrole,clusterrolebinding NODE", "").await;
    session.run("create serviceaccount robot", "").await;
    expect_file!["../snapshots/protobuf.txt"].assert_eq(&session.transcript);
}

pub(crate) async fn kubectl_watches(env: &Env) {
    let mut session = Session::new(env);
    env.post(&env.core("services"), &json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}))
        .await
        .ok();
    // kubectl watches a list from its resourceVersion. It watches a single object from now on, and
    // would miss a deletion between its two requests.
    let arguments = "get services --watch --output-watch-events";
    let mut watching = session.start(arguments);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut printed = String::new();
    while !printed.contains("\nDELETED") {
        let line = timeout(PATIENCE, lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("kubectl should print the events: {printed:?}")).unwrap();
        let line = line.expect("kubectl should watch on");
        printed.push_str(&format!("{line}\n"));
        if line.starts_with("ADDED") {
            env.delete(&env.core("services/web"), &Value::Null).await.ok();
        }
    }
    session.add(arguments, &printed);
    expect_file!["../snapshots/watches.txt"].assert_eq(&session.transcript);
}
