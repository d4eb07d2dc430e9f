//! `Provider`s of the cluster as operators use them: applied, waited for, patched, rolled back and refused on a real API server, from a real registry.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    objects::{address_of, create_service, initialized, register_node, set_port},
    registry::Registry,
    traffic::wait_for_answers,
    wait::eventually,
    workspace::{component, run, skysail},
};
use tempfile::TempDir;

use crate::simulated::Simulated;

const NODE_PORT: u16 = 30_080;

/// Seconds until a release serves, or is known not to.
const PATIENCE: u64 = 120;

struct World {
    cloud: Simulated,
    server: ApiServer,
    client: Client,
    registry: Registry,
    manager: Manager,
    folder: TempDir,
}

impl World {
    /// A cluster with a definition of `Provider` and none of them, and a manager that waits for one.
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

        let definition = run(&skysail()?, &["crd"])?;
        apply(&server, folder.path(), &definition)?;
        server.kubectl(&["wait", "--for=condition=Established", "crd/providers.skysail.dev", "--timeout=30s"])?;
        let client = server.client().await?;
        let manager = Manager::spawn_with_resources(&flags, &kubeconfig)?;
        Ok(Self { cloud, server, client, registry, manager, folder })
    }

    fn apply(&self, object: &Value) -> Result<String> {
        apply(&self.server, self.folder.path(), &object.to_string())
    }

    /// The Secrets, as operators make them.
    fn write_secrets(&self) -> Result<()> {
        let (_, token) = self.cloud.token();
        let token = format!("--from-literal=token={token}");
        self.server.kubectl(&["create", "secret", "generic", "cloud", &token])?;
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
        seen.await.map_err(|error| error.context(self.manager.last_words()))
    }

    async fn until_serving(&self, digest: &str) -> Result<Value> {
        self.until("the release serves", |status| at(status, "/active/digest") == digest).await
    }

    fn events(&self) -> Result<String> {
        let about = "involvedObject.kind=Provider,involvedObject.name=sim";
        self.server.kubectl(&[
            "get",
            "events",
            "--field-selector",
            about,
            "-o",
            "custom-columns=:.type,:.reason,:.message",
        ])
    }

    /// Waits until an Event says so.
    async fn until_told(&self, reason: &str) -> Result<()> {
        eventually(reason, 30, || {
            let told = self.events().and_then(|events| {
                ensure!(events.contains(reason), "{events}");
                Ok(())
            });
            std::future::ready(told)
        })
        .await
    }

    /// Another release of what the manager's folder holds, pushed to the tag; its digest.
    fn push_another_release(&self, wasm: &Path) -> Result<String> {
        let file = self.folder.path().join("provider.wasm");
        let mut bytes = fs::read(wasm)?;
        // A custom section of eight bytes: the length of its name, the name, two bytes of content.
        bytes.extend_from_slice(b"\0\x08\x05again\0\x01");
        fs::write(&file, bytes)?;
        self.push(&file)
    }

    fn push(&self, wasm: &Path) -> Result<String> {
        self.registry.push(wasm, "stable")?;
        digest_of(wasm)
    }
}

fn digest_of(wasm: &Path) -> Result<String> {
    let sums = run("sha256sum", &[&wasm.display().to_string()])?;
    Ok(format!("sha256:{}", sums.split(' ').next().context("no sum")?))
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
    world.wait("Ready").map_err(|error| error.context(world.manager.last_words()))?;
    world.until_serving(&first).await?;
    let table = world.server.kubectl(&["get", "providers"])?;
    ensure!(table.contains("READY") && table.contains("sim") && table.contains("True"), "{table}");

    register_node(&world.client, "a").await?;
    eventually("the node is initialised", 60, || initialized(&world.client, "a")).await?;
    create_service(&world.client, "web", 8080, NODE_PORT).await?;
    let address = eventually("the Service gets an address", 60, || address_of(&world.client, "web")).await?;
    wait_for_answers(&address, 8080, &["a"]).await?;

    let second = world.push_another_release(&wasm)?;
    world.until_serving(&second).await?;
    // Its probation needs a call, which the swap itself asks for.
    world.until("it bore out", |status| status.get("probation").is_none()).await?;
    rolled_back(&world, &second).await.context("a release that traps")?;
    restarted(&mut world, &second).await.context("a restart without the registry")?;
    wrong_objects(&world, &second).await.context("wrong objects")?;
    unsigned(&world, &second).await.context("an unsigned release")?;
    from_a_config_map(&world, &wasm).await.context("a ConfigMap")?;

    set_port(&world.client, "web", 9090, NODE_PORT).await?;
    wait_for_answers(&address, 9090, &["a"]).await?;
    world.server.kubectl(&["delete", "provider", "sim"])?;
    eventually("the controllers go on without it", 60, || {
        let restarts = world.manager.log().matches("who owns what has changed").count();
        std::future::ready(if restarts >= 2 { Ok(()) } else { Err(format!("{restarts} restarts")) })
    })
    .await?;
    world.manager.wait_until_ready().await?;
    let status = world.manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

async fn rolled_back(world: &World, before: &str) -> Result<()> {
    let trap = world.push(&component("probe-regression")?)?;
    let status = world.until("it is taken back", |status| at(status, "/refused/digest") == trap).await?;
    ensure!(at(&status, "/active/digest") == before && at(&status, "/refused/code") == "ProbationTrap", "{status:#}");
    ensure!(is(&status, "Ready", "True") && is(&status, "Degraded", "True"), "{status:#}");
    world.until_told("RolledBack").await?;
    world.wait("Ready").map(drop)
}

async fn restarted(world: &mut World, before: &str) -> Result<()> {
    world.registry.stop()?;
    world.manager.kill()?;
    world.manager.start_again()?;
    world.manager.wait_until_ready().await.map_err(|error| error.context(world.manager.last_words()))?;
    let away = |status: &Value| at(status, "/sourceFailure/code") == "RegistryUnreachable";
    let status = world.until("the registry is missed", away).await?;
    ensure!(at(&status, "/active/digest") == before && is(&status, "Ready", "True"), "{status:#}");
    world.until_told("SourceFailed").await?;
    world.registry.start_again().await
}

async fn wrong_objects(world: &World, serving: &str) -> Result<()> {
    let refused = world.patch(&json!({ "spec": { "limits": { "fuel": 1 } } }));
    ensure!(refused.is_err(), "the API server takes what is out of range");
    // What only the manager can judge.
    world.patch(&json!({ "spec": { "egress": { "allowCidrs": ["0.0.0.0/0"] } } }))?;
    let is_refused = |status: &Value| {
        condition(status, "ReleaseAccepted").is_some_and(|condition| at(condition, "/reason") == "SpecRefused")
    };
    let status = world.until("the object is refused", is_refused).await?;
    let object = world.object()?;
    let generations = ["/metadata/generation", "/status/observedGeneration"].map(|place| object.pointer(place));
    ensure!(generations[0].is_some() && generations[0] == generations[1], "{object:#}");
    ensure!(at(&status, "/active/digest") == serving && is(&status, "Ready", "True"), "{status:#}");
    world.until_told("SpecRefused").await?;
    world.patch(&json!({ "spec": { "egress": { "allowCidrs": ["127.0.0.1/32"] } } }))?;
    world.until("it is right again", |status| !is_refused(status)).await?;
    Ok(())
}

async fn unsigned(world: &World, serving: &str) -> Result<()> {
    // Any key: nobody has signed with it.
    let key = run("openssl", &["ecparam", "-name", "prime256v1", "-genkey", "-noout"])?;
    let file = world.folder.path().join("key.pem");
    fs::write(&file, key)?;
    let public = run("openssl", &["ec", "-pubout", "-in", &file.display().to_string()])?;
    world.patch(&json!({ "spec": { "source": { "oci": { "signatures": { "keys": [{ "pem": public }] } } } } }))?;
    let status = world.until("it is refused", |status| at(status, "/sourceFailure/code") == "ArtifactUnsigned").await?;
    let reason = at(&status, "/sourceFailure/reason");
    ensure!(reason.contains("sign"), "{reason}");
    ensure!(at(&status, "/active/digest") == serving && is(&status, "Ready", "True"), "{status:#}");
    Ok(())
}

async fn from_a_config_map(world: &World, wasm: &Path) -> Result<()> {
    let write = |file: &Path| -> Result<()> {
        let from = format!("--from-file=provider.wasm={}", file.display());
        let yaml =
            world.server.kubectl(&["create", "configmap", "provider", &from, "--dry-run=client", "-o", "yaml"])?;
        apply(&world.server, world.folder.path(), &yaml).map(drop)
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
