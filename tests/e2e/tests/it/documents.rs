//! The commands of the operators' documents, run as a reader types them: on a real API server, with
//! a real registry, in the order of the pages. No kubelet runs: what a command asks of a pod is
//! answered for it ([`KUBECTL`]).

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    helm::NAMESPACE,
    manager::Manager,
    objects::{create_service, register_node},
    registry::Registry,
    tools::link_programs,
    workspace::{component, digest_of, root},
};
use tempfile::TempDir;

use crate::{manifests::provider, simulated::Simulated};

/// The pages whose commands run in one cluster, in this order: the last one removes the manager.
const PAGES: [&str; 6] = [
    "deploy/docs/providers.md",
    "deploy/docs/troubleshooting.md",
    "deploy/docs/sources.md",
    "deploy/docs/rollouts.md",
    "deploy/docs/migration.md",
    "deploy/docs/upgrades.md",
];

/// The page whose commands install the manager.
const CHART: &str = "deploy/chart/README.md";

/// The pages whose commands another test runs, or none: page, and which test or why.
const ELSEWHERE: [(&str, &str); 9] = [
    ("README.md", "CI runs `make test`, and tests/it the demonstration"),
    ("deploy/docs/quickstart.md", "quickstart.rs follows it"),
    ("deploy/docs/air-gap.md", "air_gap.rs runs its commands"),
    ("deploy/docs/signatures.md", "the public Sigstore cannot be reached here; release.rs runs cosign with a key"),
    ("deploy/docs/releases.md", "release.rs verifies a release with its commands, and air_gap.rs publishes one"),
    ("deploy/docs/plan.md", "plan.rs runs its command"),
    ("deploy/docs/services.md", "pauses.rs, retained.rs and deletion_budget.rs run its commands"),
    ("deploy/docs/write-a-provider.md", "write_a_provider.rs follows it"),
    ("deploy/manifests/README.md", "manifests.rs runs its third step, real_incus.rs what makes a certificate"),
];

/// How a command begins that is not run, and why.
const NOT_RUN: [(&str, &str); 3] = [
    ("wkg ", "other_tools.rs pushes with it"),
    ("python3 -c 'import oras", "other_tools.rs pushes with it"),
    ("aws ", "a command of a cloud that is not here"),
];

/// Managers in Go that the pages name.
const MANAGERS: [(&str, &str); 4] = [
    ("Deployment", "old"),
    ("DaemonSet", "old"),
    ("DaemonSet", "aws-cloud-controller-manager"),
    ("Deployment", "hcloud-cloud-controller-manager"),
];

/// What these managers read: kind, name and key.
const CONFIGURATIONS: [(&[&str], &str, &str); 4] = [
    (&["secret", "generic"], "cloud-config", "cloud.conf"),
    (&["configmap"], "vsphere-cloud-config", "vsphere.conf"),
    (&["secret", "generic"], "vsphere-cloud-secret", "vcenter.example.com.password"),
    (&["secret", "generic"], "hcloud", "token"),
];

/// Components and examples that the pages name.
const PROVIDERS: [&str; 3] = ["aws", "hetzner", "vsphere"];

/// kubectl for a cluster without kubelets and controllers: what a pod would answer comes from the
/// manager of the test, and nothing waits for a controller that does not run.
const KUBECTL: &str = r#"#!/bin/bash
set -euo pipefail
more=()
case " $* " in
*" exec "*) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
*" logs "*) exec cat "$MANAGER_LOG" ;;
*" port-forward "* | *" rollout status "*) exit 0 ;;
" delete -k "*) more=(--wait=false) ;;
" wait "*) more=(--timeout=300s) ;;
esac
# The first folder of PATH is that of this script, and of kubectl's plugin.
exec "$(PATH=${PATH#*:} command -v kubectl)" "$@" "${more[@]}"
"#;

/// A block of a page between lines of three backticks.
pub(crate) struct Block {
    /// What the comment in the line before says: `<!-- … -->`.
    pub(crate) mark: String,
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Block {
    /// Whether the block has commands: it has no language, or that of the shell.
    pub(crate) fn is_shell(&self) -> bool {
        matches!(self.language.as_str(), "" | "sh")
    }
}

/// The blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut block, mut before) = (Vec::new(), None::<Block>, "");
    for line in page.lines() {
        let comment = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        match (block.take(), line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                let (mark, language) = (comment.unwrap_or_default().to_owned(), language.to_owned());
                block = Some(Block { mark, language, text: String::new() });
            }
            (Some(ended), Some(_)) => found.push(ended),
            (Some(mut begun), None) => {
                let line = if begun.is_shell() { line.trim_start() } else { line };
                begun.text.push_str(line);
                begun.text.push('\n');
                block = Some(begun);
            }
            (None, None) => {}
        }
        before = line;
    }
    found
}

/// The blocks from this heading of a page on.
pub(crate) fn section(path: &str, heading: &str) -> Result<Vec<Block>> {
    let page = page(path)?;
    let (_, section) = page.split_once(heading).with_context(|| format!("{path} has no section {heading}"))?;
    Ok(blocks(section))
}

/// The commands of the first block of commands, a line each, without their comments.
pub(crate) fn first_commands<const N: usize>(blocks: &[Block]) -> Result<[String; N]> {
    let block = blocks.iter().find(|block| block.is_shell()).context("the section has no commands")?;
    let bare = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
    let commands: Vec<String> = block.text.lines().map(bare).collect();
    commands.try_into().map_err(|commands| anyhow::anyhow!("the section has the commands {commands:?}"))
}

/// The blocks of commands of a page.
fn shell_blocks(page: &str) -> Vec<String> {
    blocks(page).into_iter().filter(Block::is_shell).map(|block| block.text).collect()
}

/// The commands of a block: a command may have several lines.
fn commands(block: &str) -> Result<Vec<String>> {
    let (mut found, mut begun) = (Vec::new(), String::new());
    for line in block.lines() {
        begun.push_str(line);
        let goes_on = line.ends_with('\\');
        begun.push('\n');
        // bash knows whether a command is complete.
        if !goes_on && Command::new("bash").args(["-n", "-c", &begun]).output()?.status.success() {
            found.push(std::mem::take(&mut begun));
        }
    }
    ensure!(begun.is_empty(), "bash does not read {begun:?}");
    found.retain(|command| !command.trim().is_empty() && !command.starts_with('#'));
    Ok(found)
}

pub(crate) fn page(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

#[test]
fn every_page_with_commands_is_run_or_says_why_not() -> Result<()> {
    let listed: BTreeSet<String> = PAGES
        .iter()
        .chain([&CHART])
        .chain(ELSEWHERE.iter().map(|(page, _)| page))
        .map(|page| (*page).to_owned())
        .collect();
    let mut with_commands = BTreeSet::new();
    for folder in ["", "deploy/chart", "deploy/docs", "deploy/manifests"] {
        for entry in fs::read_dir(root().join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let path = Path::new(folder).join(&name).display().to_string();
            if name.ends_with(".md")
                && (!folder.is_empty() || name == "README.md")
                && !shell_blocks(&page(&path)?).is_empty()
            {
                with_commands.insert(path);
            }
        }
    }
    ensure!(with_commands == listed, "pages with commands: {with_commands:#?}, listed: {listed:#?}");
    Ok(())
}

/// What the test does after a command.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// The password of the test's registry, which no page has.
    WriteRegistrySecret,
    /// As the pods of the Deployment, which serve the first Provider.
    StartManager,
}

/// How a command begins after which the test acts.
const ACTS: [(&str, Act); 3] = [
    ("kubectl create namespace", Act::WriteRegistrySecret),
    ("kubectl apply -f example.yaml", Act::StartManager),
    ("helm install", Act::StartManager),
];

fn act_after(command: &str) -> Option<Act> {
    ACTS.iter().find(|(begin, _)| command.starts_with(begin)).map(|(_, act)| *act)
}

/// An operator with a terminal.
struct Reader {
    manager: Option<Manager>,
    server: ApiServer,
    registry: Registry,
    _cloud: Simulated,
    folder: TempDir,
    digest: String,
}

impl Reader {
    /// A cluster, and the files that the pages name.
    async fn start() -> Result<Self> {
        let (server, registry) = (ApiServer::start()?, Registry::secured().await?);
        let (cloud, folder) = (Simulated::start(&["a"]).await?, TempDir::new()?);
        let at = |name: &str| folder.path().join(name);
        let wasm = component("simcloud")?;
        for tag in ["stable", "v1", "v2"] {
            registry.push(&wasm, tag)?;
        }
        fs::write(at("token"), cloud.token().1)?;
        fs::copy(&wasm, at("provider.wasm"))?;
        let mut object = example(PAGES[0])?;
        point_at_the_test(&mut object, "/spec", &cloud, &registry)?;
        fs::write(at("example.yaml"), object.to_string())?;
        let mut values = example(CHART)?;
        point_at_the_test(&mut values, "/providers/0/spec", &cloud, &registry)?;
        fs::write(at("values.yaml"), values.to_string())?;
        symlink(root().join("deploy").canonicalize()?, at("deploy"))?;
        symlink(root().join("guests").canonicalize()?, at("guests"))?;
        for name in PROVIDERS {
            fs::copy(component(name)?, at(&format!("{name}.wasm")))?;
        }
        fs::create_dir_all(at(".docker"))?;
        fs::write(at(".docker/config.json"), registry.docker_config())?;
        link_programs(folder.path(), &["helm", "oras"])?;
        fs::write(at("bin/kubectl"), KUBECTL)?;
        fs::set_permissions(at("bin/kubectl"), fs::Permissions::from_mode(0o755))?;
        Ok(Self { manager: None, server, registry, _cloud: cloud, digest: digest_of(&wasm)?, folder })
    }

    fn write_registry_secret(&self) -> Result<()> {
        let config = self.folder.path().join(".docker/config.json");
        let config = format!("--from-file=.dockerconfigjson={}", config.display());
        let kind = "--type=kubernetes.io/dockerconfigjson";
        self.server.kubectl(&["-n", NAMESPACE, "create", "secret", "generic", "registry", kind, &config]).map(drop)
    }

    /// What stands in the cluster before the first page: the manifests, a manager in Go with its
    /// Secret, a node, a Service, and what only this test needs.
    async fn prepare(&self) -> Result<()> {
        let (server, client) = (&self.server, self.server.client().await?);
        server.kubectl(&["apply", "--server-side", "-k", &root().join("deploy/manifests").display().to_string()])?;
        server.wait_for_definition("providers.skysail.dev").await?;
        let namespaced = |more: &[&str]| server.kubectl(&[&["-n", NAMESPACE, "create"], more].concat()).map(drop);
        self.write_registry_secret()?;
        namespaced(&["role", "registry", "--verb=get", "--resource=secrets", "--resource-name=registry"])?;
        let account = format!("--serviceaccount={NAMESPACE}:skysail");
        namespaced(&["rolebinding", "registry", "--role=registry", &account])?;
        for (kind, name) in MANAGERS {
            let labels = json!({"app": name});
            let args = json!(["--cluster-name=kubernetes"]);
            let env = json!([{"name": "HCLOUD_INSTANCES_ADDRESS_FAMILY", "value": "ipv4"}]);
            let container = json!({"name": "old", "image": "old", "args": args, "env": env});
            let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
            let spec = json!({"selector": {"matchLabels": labels}, "template": pod});
            let metadata = json!({"name": name, "namespace": "kube-system"});
            self.apply(&json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}))?;
        }
        for (kind, name, key) in CONFIGURATIONS {
            let value = format!("--from-literal={key}=x");
            server.kubectl(&[&["-n", "kube-system", "create"], kind, &[name, &value]].concat())?;
        }
        register_node(&client, "a").await?;
        create_service(&client, "web", 80, 30_080).await
    }

    fn apply(&self, object: &Value) -> Result<()> {
        let file = self.folder.path().join("object.json");
        fs::write(&file, object.to_string())?;
        self.server.kubectl(&["apply", "-f", &file.display().to_string()]).map(drop)
    }

    /// Runs the commands of a page, each block in a shell of its own.
    fn follow(&mut self, path: &str) -> Result<()> {
        for block in shell_blocks(&page(path)?) {
            let mut commands = commands(&block)?;
            commands.retain(|command| !NOT_RUN.iter().any(|(begin, _)| command.starts_with(begin)));
            // What the test does after a command has to be done before the next one.
            for part in commands.split_inclusive(|command| act_after(command).is_some()) {
                let script = part.concat();
                self.run(&script).with_context(|| format!("{path}: {script}"))?;
                if let Some(act) = part.last().and_then(|command| act_after(command)) {
                    self.act(act)?;
                }
            }
        }
        Ok(())
    }

    fn act(&mut self, act: Act) -> Result<()> {
        match act {
            Act::WriteRegistrySecret => self.write_registry_secret(),
            Act::StartManager => {
                let (kubeconfig, _) = self.server.kubeconfig_of("skysail")?;
                self.manager = Some(Manager::spawn_with_resources(&[], &kubeconfig)?);
                Ok(())
            }
        }
    }

    fn run(&mut self, script: &str) -> Result<()> {
        let folder = self.folder.path();
        let manager = self.manager.as_ref().map_or("", |manager| manager.address());
        let port = manager.rsplit(':').next().unwrap_or_default();
        let typed = script
            .replace("ghcr.io/", &format!("{}/", self.registry.host()))
            .replace("10258", port)
            .replace("sha256:…", &self.digest)
            .replace("OLD", "old")
            .replace("CODE", "LinkFailed")
            .replace("REGISTRY/", "registry.example.com/")
            .replace("-n NAMESPACE patch service NAME", "-n default patch service web")
            .replace("taint node NAME", "taint node a");
        let typed = format!("PATH=$PWD/bin:$PATH\n{typed}");
        let output = Command::new("timeout")
            .args(["600", "bash", "-euo", "pipefail", "-c", &typed])
            .current_dir(folder)
            .env("HOME", folder)
            .env("DOCKER_CONFIG", folder.join(".docker"))
            .env("SSL_CERT_FILE", self.registry.path("ca.pem"))
            .env("KUBECONFIG", self.server.kubeconfig())
            .env("MANAGER_LOG", folder.join("log"))
            .output()?;
        if !output.status.success() {
            let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let log = self.manager.as_ref().map(Manager::log_tail).unwrap_or_default();
            bail!("{}: {}{}\n{log}", output.status, said(&output.stdout), said(&output.stderr));
        }
        if let Some(manager) = &self.manager {
            fs::write(self.folder.path().join("log"), manager.log())?;
        }
        Ok(())
    }
}

/// The first example in YAML of a page.
pub(crate) fn example(path: &str) -> Result<Value> {
    let text = page(path)?;
    let (_, yaml) = text.split_once("```yaml\n").context("no example")?;
    let (yaml, _) = yaml.split_once("```").context("no end")?;
    Ok(serde_saphyr::from_str(yaml)?)
}

/// Puts the registry and the cloud of the test in place of those that the page invents, in the spec
/// of a Provider at this place.
fn point_at_the_test(object: &mut Value, place: &str, cloud: &Simulated, registry: &Registry) -> Result<()> {
    let spec = object.pointer_mut(place).and_then(Value::as_object_mut).context("no spec")?;
    let real = provider(&format!("http://{}", cloud.address()?));
    for field in ["config", "loadBalancerCidrs", "nodeCidrs", "egress", "credentials"] {
        let value = real.pointer(&format!("/spec/{field}")).with_context(|| format!("no {field}"))?;
        spec.insert(field.to_owned(), value.clone());
    }
    let oci = spec.get_mut("source").and_then(|source| source.pointer_mut("/oci")?.as_object_mut());
    let oci = oci.context("no source.oci")?;
    let reference = oci.get("reference").and_then(Value::as_str).context("no reference")?;
    let reference = reference.replace("ghcr.io", &registry.host());
    let secret = json!({"namespace": NAMESPACE, "name": "registry", "key": ".dockerconfigjson"});
    let more = [
        ("reference", reference.into()),
        ("credentials", json!({"secretKeyRef": secret})),
        ("caBundle", json!({"pem": fs::read_to_string(registry.path("ca.pem"))?})),
    ];
    oci.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Ok(())
}

#[tokio::test]
async fn the_commands_of_the_documents_work_in_the_order_of_the_pages() -> Result<()> {
    let mut reader = Reader::start().await?;
    reader.prepare().await?;
    for page in PAGES {
        if page.ends_with("upgrades.md") {
            // The last commands of this page delete the manager's ServiceAccount.
            drop(reader.manager.take());
        }
        reader.follow(page)?;
    }
    let left = reader.server.kubectl(&[
        "get",
        "crd,clusterroles,flowschemas",
        "-l",
        "app.kubernetes.io/name=skysail",
        "-o",
        "name",
    ])?;
    ensure!(left.is_empty(), "the removal leaves {left}");
    Ok(())
}

#[tokio::test]
async fn the_commands_of_the_charts_page_lead_to_a_ready_provider() -> Result<()> {
    let mut reader = Reader::start().await?;
    reader.follow(CHART)?;
    let ready = reader.server.kubectl(&[
        "get",
        "providers",
        "-o",
        "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}",
    ])?;
    ensure!(ready == "True", "{ready}");
    Ok(())
}
