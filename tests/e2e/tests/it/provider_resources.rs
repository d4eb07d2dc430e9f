//! `Provider`s of the cluster with a real API server and a real registry: apply, wait, patch,
//! rollback and refusal.

mod parts;
mod rollout;
mod trust;
mod younger;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{address_of, create_service, delete_service, initialized, register_node, set_port},
    registry::Registry,
    traffic::wait_for_answers,
    wait::eventually,
    workspace::{component, digest_of, root, run, skysail},
};
use tempfile::TempDir;
use tokio::time::interval;

use crate::simulated::Simulated;

const NODE_PORT: u16 = 30_080;

/// Seconds until a release serves, or is known not to: a busy machine compiles it in that time.
const PATIENCE: u64 = 240;

/// Services before and after a swap.
const SERVICES_BESIDE: usize = 5;
/// Services that are made until a release is known not to serve: as many as [`MADE_EVERY`] makes in
/// four minutes, less than there are addresses.
const SERVICES_MAX: usize = 240;
/// Between two Services while a swap is under way.
const MADE_EVERY: Duration = Duration::from_secs(1);
/// How the calls that made load balancers are counted.
const ENSURED: &str = r#"skysail_provider_calls_total{provider="sim",function="load-balancers.ensure",outcome="Ok"}"#;

struct World {
    cloud: Simulated,
    server: ApiServer,
    client: Client,
    registry: Registry,
    manager: Manager,
    folder: TempDir,
}

impl World {
    /// A cluster with a definition of `Provider` and none of them, and a manager that waits for
    /// one.
    async fn new() -> Result<Self> {
        let (cloud, server, registry) =
            (Simulated::start(&["a"]).await?, ApiServer::start()?, Registry::secured().await?);
        let folder = TempDir::new()?;
        let state = format!("--state-dir={}", folder.path().join("state").display());
        let flags = ["--leader-elect=false", &state];
        let kubeconfig = server.kubeconfig();
        let mut stranger = Manager::spawn_with_resources(&flags, &kubeconfig)?;
        let status = stranger.ended().await?;
        let said = stranger.log();
        ensure!(!status.success() && said.contains("skysail crd | kubectl apply -f -"), "{status}: {said}");

        refused(&server, &["status"], "--server https://HOST:10258")?;
        let definition = run(&skysail()?, &["crd"])?;
        apply(&server, folder.path(), &definition)?;
        server.wait_for_definition("providers.skysail.dev").await?;
        let client = server.client().await?;
        ensure!(of_cluster(&server, &["status"])?.starts_with("No Providers in the cluster."), "there are Providers");
        refused(&server, &["orphans"], "the cluster has no Provider")?;
        let manager = Manager::spawn_with_resources(&flags, &kubeconfig)?;
        Ok(Self { cloud, server, client, registry, manager, folder })
    }

    fn apply(&self, object: &Value) -> Result<String> {
        apply(&self.server, self.folder.path(), &object.to_string())
    }

    /// The Secret with the token of the cloud.
    fn write_token(&self, name: &str) -> Result<()> {
        let (_, token) = self.cloud.token();
        let token = format!("--from-literal=token={token}");
        self.server.kubectl(&["create", "secret", "generic", name, &token]).map(drop)
    }

    /// The Secrets, as operators make them.
    fn write_secrets(&self) -> Result<()> {
        self.write_token("cloud")?;
        let config = self.folder.path().join("docker.json");
        fs::write(&config, self.registry.docker_config())?;
        let config = format!("--from-file=.dockerconfigjson={}", config.display());
        self.server.kubectl(&[
            "create",
            "secret",
            "generic",
            "registry",
            "--type=kubernetes.io/dockerconfigjson",
            &config,
        ])?;
        Ok(())
    }

    /// A Provider that follows the tag `stable` of the registry.
    fn provider(&self) -> Result<Value> {
        let url = format!("http://{}", self.cloud.address()?);
        let secret =
            |name: &str, key: &str| json!({ "secretKeyRef": { "namespace": "default", "name": name, "key": key } });
        let oci = json!({
            "reference": format!("{}/org/provider:stable", self.registry.host()),
            "pollInterval": "1s",
            "credentials": secret("registry", ".dockerconfigjson"),
            "caBundle": { "pem": fs::read_to_string(self.registry.path("ca.pem"))? },
        });
        Ok(json!({
            "apiVersion": "skysail.dev/v1alpha1",
            "kind": "Provider",
            "metadata": { "name": "sim" },
            "spec": {
                "default": true,
                "source": { "oci": oci },
                "loadBalancerCidrs": ["127.0.0.0/8"],
                "nodeCidrs": ["127.0.0.0/8"],
                "config": format!("[Global]\nendpoint = {url}\n"),
                "egress": { "rules": [{ "origins": [url] }], "allowCidrs": ["127.0.0.1/32"] },
                "credentials": { "api": { "origins": [url], "bearer": secret("cloud", "token") } },
                // The release that traps has load balancers only.
                "allowInterfaceLoss": true,
                "rollout": { "probation": { "calls": 1, "time": "2s" } },
            },
        }))
    }

    fn patch(&self, patch: &Value) -> Result<String> {
        self.server.kubectl(&["patch", "provider", "sim", "--type=merge", "-p", &patch.to_string()])
    }

    fn wait(&self, condition: &str) -> Result<String> {
        let condition = format!("--for=condition={condition}");
        let timeout = format!("--timeout={PATIENCE}s");
        self.server.kubectl(&["wait", &condition, "provider/sim", &timeout])
    }

    fn object(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.server.kubectl(&["get", "provider", "sim", "-o", "json"])?)?)
    }

    /// Waits until the status is as `look` wants it; the status.
    async fn until(&self, what: &str, look: impl Fn(&Value) -> bool) -> Result<Value> {
        let seen = eventually(what, PATIENCE, || {
            let status = self.object().and_then(|object| {
                let status = object.get("status").cloned().unwrap_or_default();
                ensure!(look(&status), "{status:#}");
                Ok(status)
            });
            std::future::ready(status)
        });
        seen.await.map_err(|error| error.context(self.manager.log_tail()))
    }

    async fn until_serving(&self, digest: &str) -> Result<Value> {
        self.until("the release serves", |status| at(status, "/active/digest") == digest).await
    }

    fn events(&self, provider: &str) -> Result<String> {
        let about = format!("involvedObject.kind=Provider,involvedObject.name={provider}");
        self.server.kubectl(&[
            "get",
            "events",
            "--field-selector",
            &about,
            "-o",
            "custom-columns=:.type,:.reason,:.message",
        ])
    }

    /// Waits for an Event with this reason about the Provider `sim`.
    async fn until_event(&self, reason: &str) -> Result<()> {
        self.until_event_about("sim", reason).await
    }

    async fn until_event_about(&self, provider: &str, reason: &str) -> Result<()> {
        eventually(reason, PATIENCE, || {
            let found = self.events(provider).and_then(|events| {
                ensure!(events.contains(reason), "{events}");
                Ok(())
            });
            std::future::ready(found)
        })
        .await
    }

    /// Another release that behaves in the same way, pushed to the tag; its digest.
    fn push_another_release(&self, wasm: &Path) -> Result<String> {
        self.push_marked(wasm, 1)
    }

    /// The same with a mark: each makes another digest.
    fn push_marked(&self, wasm: &Path, mark: u8) -> Result<String> {
        self.push(&self.marked(wasm, mark)?)
    }

    fn marked(&self, wasm: &Path, mark: u8) -> Result<PathBuf> {
        let file = self.folder.path().join("provider.wasm");
        let mut bytes = fs::read(wasm)?;
        // A custom section of eight bytes: the length of its name, the name, two bytes of content.
        bytes.extend_from_slice(b"\0\x08\x05again\0");
        bytes.push(mark);
        fs::write(&file, bytes)?;
        Ok(file)
    }

    fn push(&self, wasm: &Path) -> Result<String> {
        self.registry.push(wasm, "stable")?;
        digest_of(wasm)
    }
}

fn apply(server: &ApiServer, folder: &Path, text: &str) -> Result<String> {
    let file = folder.join("object.yaml");
    fs::write(&file, text)?;
    server.kubectl(&["apply", "--server-side", "--warnings-as-errors", "-f", &file.display().to_string()])
}

/// The text there; empty where there is none.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn condition<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = status.pointer("/conditions")?.as_array()?;
    conditions.iter().find(|condition| at(condition, "/type") == type_)
}

fn is(status: &Value, type_: &str, value: &str) -> bool {
    condition(status, type_).is_some_and(|condition| at(condition, "/status") == value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_applied_followed_rolled_back_and_refused() -> Result<()> {
    let mut world = World::new().await?;
    world.write_secrets()?;
    let wasm = component("simcloud")?;
    let first = world.push(&wasm)?;
    world.apply(&world.provider()?)?;
    world.wait("Ready").map_err(|error| error.context(world.manager.log_tail()))?;
    let status = world.until_serving(&first).await?;
    let table = world.server.kubectl(&["get", "providers"])?;
    let row: Vec<_> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    ensure!(
        row.starts_with(&["sim", "True", "False", "AsExpected", at(&status, "/active/version"), &first]),
        "{table}"
    );

    register_node(&world.client, "a").await?;
    eventually("the node is initialised", 60, || initialized(&world.client, "a")).await?;
    create_service(&world.client, "web", 8080, NODE_PORT).await?;
    let address = eventually("the Service gets an address", 60, || address_of(&world.client, "web")).await?;
    wait_for_answers(&address, 8080, &["a"]).await?;

    let second = swapped(&world, &wasm, &first).await.context("a tag that moves")?;
    // The second release's probation needs a call, which the swap itself causes.
    world.until("it passed probation", |status| status.get("probation").is_none()).await?;
    status_shows(&world, &second).context("skysail status")?;
    rolled_back(&world, &second).await.context("a release that traps")?;
    restarted(&mut world, &second).await.context("a restart without the registry")?;
    wrong_objects(&world, &second).await.context("wrong objects")?;
    wrong_at_the_start(&mut world, &wasm).await.context("a Secret that is missing at the start")?;
    trust::rotated(&world).await.context("a token that is exchanged")?;
    trust::unsigned(&world, &second).await.context("an unsigned release")?;
    from_a_config_map(&world, &wasm).await.context("a ConfigMap")?;
    parts::in_parts(&world, &wasm).await.context("ConfigMaps as parts")?;

    orphans(&world).context("skysail orphans")?;
    set_port(&world.client, "web", 9090, NODE_PORT).await?;
    wait_for_answers(&address, 9090, &["a"]).await?;
    world.server.kubectl(&["delete", "provider", "sim"])?;
    eventually("the controllers continue without the provider", 60, || {
        let edits = world.manager.log().matches("the claims of the providers have changed").count();
        std::future::ready(if edits >= 2 { Ok(()) } else { Err(format!("{edits} edits")) })
    })
    .await?;
    let status = world.manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

/// A command of the program against the cluster.
fn of_cluster(server: &ApiServer, arguments: &[&str]) -> Result<String> {
    let kubeconfig = server.kubeconfig().display().to_string();
    run(skysail()?, &[arguments, &["--kubeconfig", &kubeconfig]].concat())
}

/// Checks that the command fails with a message that contains the remedy.
fn refused(server: &ApiServer, arguments: &[&str], remedy: &str) -> Result<()> {
    let Err(error) = of_cluster(server, arguments) else { anyhow::bail!("{arguments:?} succeeds") };
    ensure!(error.to_string().contains(remedy), "{error}");
    Ok(())
}

/// Checks the output of `skysail status` from the object and from the manager.
fn status_shows(world: &World, serving: &str) -> Result<()> {
    let page = of_cluster(&world.server, &["status", "sim"])?;
    // After the swap the load balancer was ensured again, and the end of the probation was written
    // with the call statistics.
    for text in ["Provider sim: ready\n", serving, "load-balancers.", "FUEL MAX"] {
        ensure!(page.contains(text), "{text:?} is not in\n{page}");
    }
    refused(&world.server, &["status", "other"], "there is no provider \"other\"; the providers are sim")?;

    let token = world.folder.path().join("admin-token");
    fs::write(&token, world.server.token())?;
    let ask = |more: &[&str]| {
        let manager = ["status", "--server", world.manager.address(), "--output=json"];
        run(skysail()?, &[&manager[..], more].concat())
    };
    let token = ["--insecure-skip-tls-verify", "--token-file", &token.display().to_string()].map(str::to_owned);
    let list: Value = serde_json::from_str(&ask(&token.each_ref().map(String::as_str))?)?;
    ensure!(at(&list, "/items/0/status/active/digest") == serving, "{list:#}");
    let calls = list.pointer("/items/0/status/calls").and_then(Value::as_array).context("no calls")?;
    let ended = |calls: &Value| calls.pointer("/calls").and_then(Value::as_u64) > Some(0);
    ensure!(calls.len() > 2 && calls.iter().all(ended), "{list:#}");
    for (flags, remedy) in
        [(&["--insecure-skip-tls-verify"][..], "--non-resource-url=/providers"), (&[], "does not answer")]
    {
        let Err(error) = ask(flags) else { anyhow::bail!("{flags:?} succeeds") };
        ensure!(error.to_string().contains(remedy), "{error}");
    }
    Ok(())
}

/// A new release becomes active while Services are created: no call fails, and both releases have
/// created load balancers. Returns the digest of the new release.
async fn swapped(world: &World, wasm: &Path, first: &str) -> Result<String> {
    let mut made = Vec::new();
    make_services(world, &mut made, SERVICES_BESIDE).await?;
    let second = world.push_another_release(wasm)?;
    let mut pace = interval(MADE_EVERY);
    while world.manager.release()? != second {
        ensure!(made.len() < SERVICES_MAX, "release {first} still serves; {}", world.manager.log_tail());
        pace.tick().await;
        make_services(world, &mut made, 1).await?;
    }
    make_services(world, &mut made, SERVICES_BESIDE).await?;
    for name in &made {
        eventually("each Service gets an address", 60, || address_of(&world.client, name)).await?;
    }
    world.until_serving(&second).await?;
    let calls = world.manager.calls("load-balancers.ensure");
    let by = |digest: &str| calls.iter().filter(|release| *release == digest).count();
    ensure!(by(first) > SERVICES_BESIDE && by(&second) >= SERVICES_BESIDE, "`ensure` was called on {calls:?}");
    let metrics = world.manager.metrics().await?;
    has_rows(&metrics)?;
    let (ok, failed): (Vec<_>, Vec<_>) = metrics
        .lines()
        .filter(|line| line.starts_with("skysail_provider_calls_total{"))
        .partition(|line| line.contains(r#"outcome="Ok""#));
    let ensured = ok.iter().find_map(|line| line.strip_prefix(ENSURED)).context("no call is counted")?;
    ensure!(failed.is_empty() && ensured.trim().parse::<usize>()? > made.len(), "{ok:?}, and failed {failed:?}");
    for name in &made {
        delete_service(&world.client, name).await?;
    }
    Ok(second)
}

async fn make_services(world: &World, made: &mut Vec<String>, count: usize) -> Result<()> {
    for _ in 0..count {
        let (name, number) = (format!("swap-{}", made.len()), u16::try_from(made.len())?);
        create_service(&world.client, &name, 8080, NODE_PORT + 1 + number).await?;
        made.push(name);
    }
    Ok(())
}

/// Checks that there are no orphans, and that the provider was asked.
fn orphans(world: &World) -> Result<()> {
    let found = of_cluster(&world.server, &["orphans", "--cluster-name=e2e", "--output=json"])?;
    ensure!(found == "[]", "{found}");
    refused(&world.server, &["orphans", "--provider=other"], "the cluster has no Provider \"other\"")
}

async fn rolled_back(world: &World, before: &str) -> Result<()> {
    let trap = world.push(&component("probe-regression")?)?;
    let status = world.until("the release is rolled back", |status| at(status, "/refused/digest") == trap).await?;
    ensure!(at(&status, "/active/digest") == before && at(&status, "/refused/code") == "ProbationTrap", "{status:#}");
    ensure!(is(&status, "Ready", "True") && is(&status, "Degraded", "True"), "{status:#}");
    world.until_event("RolledBack").await?;
    let metrics = world.manager.metrics().await?;
    let counted = |line: &str| {
        line.starts_with("skysail_slot_rollbacks_total{") && line.contains("ProbationTrap") && line.ends_with(" 1")
    };
    ensure!(metrics.lines().any(counted), "no metric counts the rollback:\n{metrics}");
    world.wait("Ready").map(drop)
}

async fn restarted(world: &mut World, before: &str) -> Result<()> {
    world.registry.stop()?;
    world.manager.kill()?;
    world.manager.start_again()?;
    world.manager.wait_until_ready().await.map_err(|error| error.context(world.manager.log_tail()))?;
    let away = |status: &Value| at(status, "/sourceFailure/code") == "RegistryUnreachable";
    let status = world.until("the source failure is reported", away).await?;
    ensure!(at(&status, "/active/digest") == before && is(&status, "Ready", "True"), "{status:#}");
    world.until_event("SourceFailed").await?;
    // The tag still names the release that was rolled back, and the manager refuses it again.
    world.registry.start_again().await?;
    let status =
        world.until("the release is in quarantine", |status| at(status, "/refused/code") == "Quarantined").await?;
    ensure!(at(&status, "/active/digest") == before && is(&status, "Ready", "True"), "{status:#}");
    Ok(())
}

async fn wrong_objects(world: &World, serving: &str) -> Result<()> {
    let refused = world.patch(&json!({ "spec": { "limits": { "fuel": 1 } } }));
    ensure!(refused.is_err(), "the API server accepts a limit that is out of range");
    // Only the manager can check this.
    world.patch(&json!({ "spec": { "egress": { "allowCidrs": ["0.0.0.0/0"] } } }))?;
    let is_refused = |status: &Value| {
        condition(status, "ReleaseAccepted").is_some_and(|condition| at(condition, "/reason") == "SpecRefused")
    };
    let status = world.until("the object is refused", is_refused).await?;
    let object = world.object()?;
    let generations = ["/metadata/generation", "/status/observedGeneration"].map(|place| object.pointer(place));
    ensure!(generations[0].is_some() && generations[0] == generations[1], "{object:#}");
    ensure!(at(&status, "/active/digest") == serving && is(&status, "Ready", "True"), "{status:#}");
    world.until_event("SpecRefused").await?;
    world.patch(&json!({ "spec": { "egress": { "allowCidrs": ["127.0.0.1/32"] } } }))?;
    world.until("the object is valid again", |status| !is_refused(status)).await?;
    Ok(())
}

/// A younger Provider of the same cloud that works takes no Service of one that cannot be served.
async fn wrong_at_the_start(world: &mut World, wasm: &Path) -> Result<()> {
    world.registry.push(wasm, "younger")?;
    world.write_token("younger")?;
    let mut younger = world.provider()?;
    for (place, value) in [
        ("/metadata/name", "younger"),
        ("/spec/source/oci/reference", &format!("{}/org/provider:younger", world.registry.host())),
        ("/spec/credentials/api/bearer/secretKeyRef/name", "younger"),
    ] {
        *younger.pointer_mut(place).context(place)? = json!(value);
    }
    world.manager.kill()?;
    world.apply(&younger)?;
    world.server.kubectl(&["delete", "secret", "cloud"])?;
    world.manager.start_again()?;
    let message = |status: &Value| condition(status, "Ready").map(|ready| at(ready, "/message").to_owned());
    world
        .until("the older one is refused", |status| {
            is(status, "Ready", "False")
                && message(status).unwrap_or_default().contains("Secret default/cloud does not")
        })
        .await?;
    let ready = ["wait", "--for=condition=Ready", "provider/younger", &format!("--timeout={PATIENCE}s")];
    world.server.kubectl(&ready).map_err(|error| error.context(world.manager.log_tail()))?;
    create_service(&world.client, "waiting", 8080, NODE_PORT + 1).await?;
    eventually("the Service waits for its provider", 60, || {
        let events = world.server.kubectl(&["get", "events", "--field-selector=involvedObject.name=waiting"]);
        std::future::ready(events.and_then(|events| {
            ensure!(events.contains("no release of the provider serves"), "{events}");
            Ok(())
        }))
    })
    .await?;
    world.write_token("cloud")?;
    eventually("the Service gets an address", 60, || address_of(&world.client, "waiting")).await?;
    let metrics = world.manager.metrics().await?;
    let taken = |line: &&str| line.contains(r#"provider="younger",function="load-balancers"#);
    ensure!(!metrics.lines().any(|line| taken(&line)), "the younger one was asked:\n{metrics}");
    delete_service(&world.client, "waiting").await?;
    world.server.kubectl(&["delete", "provider", "younger"])?;
    world.wait("Ready").map(drop)
}

/// The page for operators has each metric under the name that is served.
fn has_rows(metrics: &str) -> Result<()> {
    let page = fs::read_to_string(root().join("deploy/docs/observability.md"))?;
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for (name, kind) in types {
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        ensure!(page.contains(&format!("| `{name}{suffix}` |")), "observability.md has no row for {name}{suffix}");
    }
    Ok(())
}

/// With client-side `kubectl apply`, which stores the object in an annotation of at most 256 KiB,
/// so the component is compressed.
async fn from_a_config_map(world: &World, wasm: &Path) -> Result<()> {
    let (packed, object) = (world.folder.path().join("provider.wasm.gz"), world.folder.path().join("configmap.yaml"));
    let write = |file: &Path| -> Result<()> {
        let [from, to] = [file, &packed].map(|path| path.display().to_string());
        run("sh", &["-c", r#"gzip -9 -c "$0" > "$1""#, &from, &to])?;
        let from = format!("--from-file={}", packed.display());
        let yaml =
            world.server.kubectl(&["create", "configmap", "provider", &from, "--dry-run=client", "-o", "yaml"])?;
        fs::write(&object, yaml)?;
        world.server.kubectl(&["apply", "-f", &object.display().to_string()]).map(drop)
    };
    write(wasm)?;
    world.patch(
        &json!({ "spec": { "source": { "oci": null, "configMap": { "namespace": "default", "name": "provider" } } } }),
    )?;
    world.until_serving(&digest_of(wasm)?).await?;
    let file = world.folder.path().join("provider.wasm");
    write(&file)?;
    world.until_serving(&digest_of(&file)?).await?;
    world.wait("Ready").map(drop)
}
