//! The page `deploy/docs/air-gap.md`. A release is published as `deploy/docs/releases.md` says, in
//! a registry that stands for the internet, and copied from there into a second one. The first one
//! has stopped when the chart installs the manager, whose provider has to be signed. The provider
//! of the simulated cloud stands for that of Incus.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use skysail_test_e2e::{
    api_server::ApiServer,
    helm::NAMESPACE,
    manager::Manager,
    registry::Registry,
    tools::link_programs,
    workspace::{component, run},
};
use tempfile::TempDir;

use crate::{
    documents::{Block, blocks, example, page},
    manifests::{flags, provider},
    release::Checkout,
    simulated::Simulated,
};

const PAGE: &str = "deploy/docs/air-gap.md";
const RELEASES: &str = "deploy/docs/releases.md";
/// The providers of a release, and the one that the test's release has.
const ALL: &str = "skysail aws hetzner incus openstack vsphere";
const ONE: &str = "skysail incus";

/// An operator with a release, two registries and a cluster.
struct Operator {
    folder: TempDir,
    checkout: Checkout,
    outside: Registry,
    inside: Registry,
    server: ApiServer,
}

impl Operator {
    async fn start() -> Result<Self> {
        let (folder, checkout) = (TempDir::new()?, Checkout::new()?);
        let (outside, inside) = (Registry::secured().await?, Registry::secured().await?);
        let operator = Self { folder, checkout, outside, inside, server: ApiServer::start()? };
        link_programs(operator.folder.path(), &["helm", "oras", "cosign"])?;
        let both = [&operator.outside, &operator.inside];
        let mut logins = serde_json::Map::new();
        for registry in both {
            let login: Value = serde_json::from_str(&registry.docker_config())?;
            logins.extend(login.get("auths").and_then(Value::as_object).context("no auths")?.clone());
        }
        let logins = json!({"auths": logins});
        fs::create_dir(operator.at(".docker"))?;
        fs::write(operator.at(".docker/config.json"), logins.to_string())?;
        let authorities: Vec<String> =
            both.iter().map(|registry| fs::read_to_string(registry.path("ca.pem"))).collect::<Result<_, _>>()?;
        fs::write(operator.at("ca.pem"), authorities.concat())?;
        Ok(operator)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a release, and links its folder and its public key where the pages name them.
    fn release(&self) -> Result<()> {
        let components = self.at("components");
        fs::create_dir(&components)?;
        let simulated = component("simcloud")?;
        for kind in ["wasm", "symbols"] {
            fs::copy(simulated.with_extension(kind), components.join(format!("incus.{kind}")))?;
        }
        self.checkout.tag()?;
        let key = self.checkout.key()?;
        let release = self.checkout.release_of(&components, "release", &key.each_ref().map(String::as_str))?;
        fs::create_dir(self.at("target"))?;
        symlink(release, self.at(&format!("target/release-v{}", self.checkout.version)))?;
        fs::copy(self.checkout.at("cosign.pub"), self.at("cosign.pub"))?;
        Ok(())
    }

    /// The text of a page with what it invents replaced.
    fn real(&self, text: &str) -> String {
        text.replace("X.Y.Z", &self.checkout.version)
            .replace("ghcr.io/", &format!("{}/", self.outside.host()))
            .replace("registry.example.com", &self.inside.host())
            // A busy machine gives the test a tenth of a core.
            .replace("--timeout=2m", "--timeout=10m")
    }

    fn run(&self, commands: &str) -> Result<String> {
        let (folder, kubeconfig) = (self.folder.path().display(), self.server.kubeconfig());
        let script = format!(
            "set -euo pipefail\ncd {folder}\nexport PATH={folder}/bin:$PATH HOME={folder} DOCKER_CONFIG={folder}/.docker \
             SSL_CERT_FILE={folder}/ca.pem KUBECONFIG={} NO_PROXY='*'\n{}",
            kubeconfig.display(),
            self.real(commands)
        );
        run("bash", &["-c", &script])
    }

    /// The values of the page, with the keys of this release and the simulated cloud.
    fn write_values(&self, cloud: &Simulated) -> Result<()> {
        let mut values = example(PAGE)?;
        let real = provider(&format!("http://{}", cloud.address()?));
        let spec = values.pointer_mut("/providers/0/spec").and_then(Value::as_object_mut).context("no spec")?;
        for field in ["config", "loadBalancerCidrs", "nodeCidrs", "egress", "credentials"] {
            let value = real.pointer(&format!("/spec/{field}")).with_context(|| format!("no {field}"))?;
            spec.insert(field.to_owned(), value.clone());
        }
        for (place, file) in [("caBundle", self.inside.path("ca.pem")), ("signatures/keys/0", self.at("cosign.pub"))] {
            let pem = values.pointer_mut(&format!("/providers/0/spec/source/oci/{place}/pem"));
            *pem.with_context(|| format!("no {place} in the example"))? = fs::read_to_string(file)?.into();
        }
        // The references stay: registryOverride replaces their registry.
        let text = values.to_string().replace("X.Y.Z", &self.checkout.version);
        fs::write(self.at("values.yaml"), text.replace("registry.example.com", &self.inside.host()))?;
        fs::write(self.at("token"), cloud.token().1)?;
        Ok(())
    }
}

#[tokio::test]
async fn a_release_is_copied_into_a_registry_inside_and_serves_there_without_the_one_outside() -> Result<()> {
    let mut operator = Operator::start().await?;
    operator.release()?;
    let publish = blocks(&page(RELEASES)?).into_iter().find(|block| block.text.contains("helm push"));
    let publish = publish.with_context(|| format!("{RELEASES} publishes nothing"))?.text;
    ensure!(publish.contains(ALL), "{RELEASES} publishes other artifacts than {ALL}");
    operator.run(&publish.replace(ALL, ONE))?;

    let steps: Vec<Block> = blocks(&page(PAGE)?).into_iter().filter(Block::is_shell).collect();
    let [outside, copy, install] = &steps[..] else { anyhow::bail!("{PAGE} has {} blocks of commands", steps.len()) };
    ensure!(outside.mark == "outside" && copy.mark == "inside" && install.mark == "inside", "other marks");
    operator.run(&outside.text)?;
    operator.outside.stop()?;
    operator.run(&copy.text)?;

    let cloud = Simulated::start(&["a"]).await?;
    operator.write_values(&cloud)?;
    let (install, wait) = install.text.split_once("kubectl wait").context("nothing is waited for")?;
    operator.run(install)?;
    operator.run(&format!("kubectl -n {NAMESPACE} create secret generic cloud --from-file=token"))?;
    let flags = flags(&operator.server, "--provider-resources")?;
    let (kubeconfig, _) = operator.server.kubeconfig_of("skysail")?;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let manager = Manager::spawn_with_resources(&flags, &kubeconfig)?;
    operator.run(&format!("kubectl wait{wait}")).map_err(|error| error.context(manager.log_tail()))?;

    let path = "jsonpath={.spec.template.spec.containers[0].image}";
    let image = operator.server.kubectl(&["-n", NAMESPACE, "get", "deployment", "skysail", "-o", path])?;
    ensure!(image.starts_with(&operator.inside.host()), "the image is {image}");
    operator.run(&format!("oras manifest fetch {image}")).map(drop)
}
