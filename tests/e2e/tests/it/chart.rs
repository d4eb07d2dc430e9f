//! `deploy/chart` with the real helm on a real API server: what it renders, refuses, installs,
//! upgrades and leaves behind. No kubelet runs: the manager is a process with the flags and the
//! account of the Deployment, and the test does what the Job before an upgrade would do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, future,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    helm::{NAMESPACE, RELEASE, chart, helm, helm_with, prometheus_definitions, promtool, rendered, values},
    manager::Manager,
    wait::eventually,
    workspace::{root, run, skysail},
};
use tempfile::TempDir;

use crate::{
    manifests::{create_what_the_provider_names, flags, provider},
    simulated::Simulated,
};

/// The sets of values in `deploy/chart/ci`.
const SETS: [&str; 5] = ["default", "everything", "host-network", "provider-file", "monitored"];

fn text(name: &str) -> Result<String> {
    fs::read_to_string(chart().join(name)).with_context(|| format!("deploy/chart/{name}"))
}

/// `make manifests` writes them.
#[test]
fn the_manifests_are_what_the_chart_renders() -> Result<()> {
    let folder = root().join("deploy/manifests");
    let files = rendered(&[])?;
    ensure!(files.len() == 5, "{:#?}", files.keys());
    for (name, text) in files {
        let committed = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        ensure!(
            committed == text,
            "deploy/manifests/{name} differs from the chart; run `make manifests`. The chart:\n{text}"
        );
    }
    Ok(())
}

#[test]
fn every_set_of_values_is_tested() -> Result<()> {
    let files = fs::read_dir(chart().join("ci"))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let files: BTreeSet<String> = files.collect::<Result<_>>()?;
    let sets: BTreeSet<String> = SETS.iter().map(|name| format!("{name}-values.yaml")).collect();
    ensure!(files == sets, "deploy/chart/ci has {files:?}");
    Ok(())
}

#[test]
fn helm_lint_accepts_every_set_of_values() -> Result<()> {
    for set in SETS {
        helm(&["lint", "--strict", &chart().display().to_string(), "--values", &values(set)])?;
    }
    Ok(())
}

/// The API server validates each object with the schema of its kind, strictly, and without a
/// warning.
#[tokio::test]
async fn the_api_server_accepts_what_every_set_of_values_renders() -> Result<()> {
    let (server, folder) = (ApiServer::start()?, TempDir::new()?);
    let manifests = root().join("deploy/manifests");
    for file in ["namespace.yaml", "crd.yaml"] {
        apply(&server, &manifests.join(file), &[])?;
    }
    for definition in prometheus_definitions()? {
        apply(&server, Path::new(&definition), &[])?;
    }
    for definition in [
        "providers.skysail.dev",
        "servicemonitors.monitoring.coreos.com",
        "podmonitors.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com",
    ] {
        server.wait_for_definition(definition).await?;
    }
    for set in SETS {
        let chart = chart().display().to_string();
        // With the hooks of an upgrade, which `--no-hooks` leaves out.
        let mut all = helm(&["template", RELEASE, &chart, "--namespace", NAMESPACE, "--values", &values(set)])?;
        // The namespace of the manifests refuses pods with the host network.
        if all.contains("hostNetwork: true") {
            all = all.replace(&format!("namespace: {NAMESPACE}"), "namespace: default");
        }
        let file = folder.path().join(format!("{set}.yaml"));
        fs::write(&file, all)?;
        apply(&server, &file, &["--dry-run=server"]).with_context(|| format!("with ci/{set}-values.yaml"))?;
    }
    Ok(())
}

fn apply(server: &ApiServer, file: &Path, more: &[&str]) -> Result<String> {
    let file = file.display().to_string();
    server.kubectl(
        &[&["apply", "--server-side", "--validate=strict", "--warnings-as-errors", "-f", &file], more].concat(),
    )
}

/// Arguments of helm, and what its error has to name.
const REFUSED: [(&[&str], &str); 19] = [
    (&["--set", "flags.leader-elect=false"], "set replicas to 1"),
    (&["--set", "flags.enable-leader-migration=true"], "set leaderElection.migrationLeaseName"),
    (&["--set", "replica=2"], "'replica' not allowed"),
    (&["--set-string", "replicas=2"], "/replicas"),
    (&["--set", "replicas=-1"], "/replicas"),
    (&["--set", "image.pullPolicy=Sometimes"], "/image/pullPolicy"),
    (&["--set", "image.digest=sha256:1"], "/image/digest"),
    (&["--set", "image.registry=r"], "at '/image'"),
    (&["--set", "securePort=0"], "/securePort"),
    (&["--set", "loggingFormat=xml"], "/loggingFormat"),
    (&["--set", "flags.cluster-name=a"], "use the value clusterName"),
    (&["--set", "flags.Log=a"], "at '/flags'"),
    (&["--set", "clusterCIDR=10.0.0.0"], "/clusterCIDR"),
    (&["--set", "proxy=https://proxy"], "/proxy"),
    (&["--set-json", r#"providers=[{"name":"UPPER","spec":{"source":{}}}]"#], "/providers/0/name"),
    (&["--set-json", r#"providers=[{"name":"a","spec":{}}]"#], "/providers/0/spec"),
    (&["--set", "hostNetwork=true,networkPolicy.enabled=true"], "networkPolicy.enabled: a NetworkPolicy has no effect"),
    (&["--set", "hostNetwork=true,metrics.podMonitor.enabled=true"], "with hostNetwork set bindAddress"),
    (
        &["--set-json", r#"providers=[{"name":"a","spec":{"source":{}}}]"#, "--set", "providerFile=/p"],
        "remove one of the two values",
    ),
];

#[test]
fn a_wrong_value_is_refused_with_its_path() -> Result<()> {
    for (arguments, named) in REFUSED {
        let error = rendered(arguments).err().with_context(|| format!("helm accepted {arguments:?}"))?;
        ensure!(format!("{error:#}").contains(named), "{arguments:?}: {error:#}");
    }
    Ok(())
}

/// The table of the README against `values.yaml` and the schema.
#[test]
fn every_value_stands_in_the_readme_with_its_default_and_in_the_schema() -> Result<()> {
    let defaults: Value = serde_saphyr::from_str(&text("values.yaml")?)?;
    let schema: Value = serde_json::from_str(&text("values.schema.json")?)?;
    let mut leaves = BTreeMap::new();
    collect(&defaults, "", &mut leaves);
    let readme = text("README.md")?;
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    let rows =
        rows.map(|(path, rest)| Ok((path.to_owned(), rest.split_once(" | ").context(path.to_owned())?.0.to_owned())));
    let rows: BTreeMap<String, String> = rows.collect::<Result<_>>()?;
    ensure!(rows == leaves, "the README has {rows:#?}, values.yaml has {leaves:#?}");
    for path in leaves.keys() {
        let known = path.split('.').try_fold(&schema, |schema, name| {
            schema
                .pointer(&format!("/properties/{name}"))
                .or_else(|| schema.get("properties").is_none().then_some(schema))
        });
        ensure!(known.is_some(), "values.schema.json has no {path}");
    }
    Ok(())
}

/// The values that are no objects, or empty ones, by their path, as the README writes them.
fn collect(value: &Value, path: &str, leaves: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(value, &path, leaves);
            }
        }
        Value::Array(items) if !items.is_empty() => drop(leaves.insert(path.to_owned(), "`[…]`".to_owned())),
        other => drop(leaves.insert(path.to_owned(), format!("`{other}`"))),
    }
}

/// Each alert fires for the reason that it names, and not without it.
#[test]
fn promtool_accepts_the_alerts_and_their_unit_tests() -> Result<()> {
    promtool(&["check", "rules", &chart().join("files/alerts.yaml").display().to_string()])?;
    promtool(&["test", "rules", &root().join("tests/e2e/promtool/alerts.test.yaml").display().to_string()]).map(drop)
}

/// promtool reads the expressions of the dashboard as those of rules.
#[test]
fn promtool_accepts_each_expression_of_the_dashboard() -> Result<()> {
    let dashboard: Value = serde_json::from_str(&text("files/dashboard.json")?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<&str> =
        targets.map(|target| target["expr"].as_str().context("no expr")).collect::<Result<_>>()?;
    ensure!(expressions.len() > 10, "{expressions:#?}");
    let rules = expressions.iter().enumerate().map(|(number, expression)| {
        let expression = expression.replace("$__rate_interval", "5m").replace("$provider", ".*");
        json!({"record": format!("panel:{number}"), "expr": expression})
    });
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    let folder = TempDir::new()?;
    let file = folder.path().join("rules.yaml");
    fs::write(&file, rules.to_string())?;
    promtool(&["check", "rules", &file.display().to_string()]).map(drop)
}

/// A release from `helm install` to `helm uninstall`.
#[tokio::test]
async fn helm_installs_a_serving_provider_and_upgrades_rolls_back_and_uninstalls() -> Result<()> {
    let (server, folder) = (ApiServer::start()?, TempDir::new()?);
    let cloud = Simulated::start(&["a"]).await?;
    server.kubectl(&["apply", "-f", &root().join("deploy/manifests/namespace.yaml").display().to_string()])?;
    create_what_the_provider_names(&server, &cloud, folder.path())?;
    let file = folder.path().join("values.json");
    fs::write(
        &file,
        json!({"providers": [{"name": "sim", "spec": provider(&format!("http://{}", cloud.address()?))["spec"]}]})
            .to_string(),
    )?;
    let (chart, values) = (chart().display().to_string(), file.display().to_string());

    helm_with(&server.kubeconfig(), &["install", RELEASE, &chart, "--values", &values])?;
    let (kubeconfig, _) = server.kubeconfig_of(RELEASE)?;
    let flags = flags(&server, "--provider-resources")?;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut manager = Manager::spawn_with_resources(&flags, &kubeconfig)?;
    manager.wait_until_ready().await.map_err(|error| error.context(manager.log_tail()))?;
    let ready = || future::ready(server.kubectl(&["wait", "--for=condition=Ready", "provider/sim", "--timeout=1s"]));
    eventually("the Provider of the values is ready", 60, ready).await?;
    ensure!(!manager.log().to_lowercase().contains("forbidden"), "{}", manager.log_tail());

    // A definition of an older version, which lacks a field.
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let older = json!([
        {"op": "replace", "path": "/metadata/annotations/skysail.dev~1version", "value": "0.0.0-older"},
        {"op": "remove", "path": format!("{spec}/vendorConfig")},
    ]);
    let definition = "crd/providers.skysail.dev";
    server.kubectl(&["patch", definition, "--type=json", "-p", &older.to_string()])?;
    // helm waits for the Job.
    let helm = tokio::task::spawn_blocking({
        let arguments = ["upgrade", RELEASE, &chart, "--values", &values, "--set", "replicas=3"].map(str::to_owned);
        let kubeconfig = server.kubeconfig();
        move || helm_with(&kubeconfig, &arguments.each_ref().map(String::as_str))
    });
    the_job_before_the_upgrade(&server).await?;
    helm.await??;
    let found = server.kubectl(&["get", definition, "-o", "json"])?;
    ensure!(
        found.contains("vendorConfig") && !found.contains("0.0.0-older"),
        "the definition is not that of the program"
    );
    ensure!(replicas(&server)? == "3", "the upgrade changed nothing");
    helm_with(&server.kubeconfig(), &["rollback", RELEASE, "1"])?;
    ensure!(replicas(&server)? == "2", "the rollback changed nothing");

    helm_with(&server.kubeconfig(), &["uninstall", RELEASE])?;
    let left = server.kubectl(&[
        "get",
        "all,serviceaccounts,roles,rolebindings,poddisruptionbudgets",
        "-A",
        "-l",
        "app.kubernetes.io/name=skysail",
        "-o",
        "name",
    ])?;
    ensure!(left.is_empty(), "left behind: {left}");
    ensure!(server.kubectl(&["get", "providers", "-o", "name"])?.is_empty(), "the Provider of the values is left");
    ensure!(
        server.kubectl(&["get", definition, "-o", "name"]).is_ok(),
        "the definition went, and each Provider with it"
    );
    Ok(())
}

fn replicas(server: &ApiServer) -> Result<String> {
    server.kubectl(&["-n", NAMESPACE, "get", "deployment", RELEASE, "-o", "jsonpath={.spec.replicas}"])
}

/// Does what a kubelet and the Job controller would do for the Job: runs its command with its
/// account, and writes that it has succeeded.
async fn the_job_before_the_upgrade(server: &ApiServer) -> Result<()> {
    let name = format!("{RELEASE}-crd");
    let args = ["-n", NAMESPACE, "get", "job", &name, "-o", "jsonpath={.spec.template.spec.containers[0].args}"];
    let args = eventually("helm creates the Job", 120, || future::ready(server.kubectl(&args))).await?;
    let args: Vec<String> = serde_json::from_str(&args)?;
    let kubeconfig = server.kubeconfig_of(&name)?.0.display().to_string();
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--kubeconfig", &kubeconfig]).collect();
    run(skysail()?, &args)?;
    let now = "2026-01-01T00:00:00Z";
    let condition = |of: &str| json!({"type": of, "status": "True", "lastTransitionTime": now, "lastProbeTime": now});
    let status = json!({"status": {
        "startTime": now, "completionTime": now, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    server
        .kubectl(&[
            "-n",
            NAMESPACE,
            "patch",
            "job",
            &name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status.to_string(),
        ])
        .map(drop)
}
