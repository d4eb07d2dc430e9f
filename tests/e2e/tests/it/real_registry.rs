//! Tests with a real registry: `skysail push` and `pull`, and a manager that polls a tag.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use skysail_test_e2e::{
    api_server::ApiServer,
    manager::Manager,
    registry::{Registry, signing::MANIFEST},
    wait::eventually,
    workspace::{component, digest_of, root, run, skysail},
};

use crate::simulated::Simulated;

#[tokio::test]
async fn a_pushed_component_is_pulled_over_tls_and_only_with_the_password() -> Result<()> {
    let registry = Registry::secured().await?;
    let wasm = component("dummy")?;
    let digest = registry.push(&wasm, "v1")?;
    ensure!(registry.push(&wasm, "v1")? == digest, "the same file is another artifact");
    let (by_tag, by_digest) = (registry.path("tag.wasm"), registry.path("digest.wasm"));
    for (reference, file) in [(":v1".to_owned(), by_tag), (format!("@{digest}"), by_digest)] {
        let reference = format!("{}/org/provider{reference}", registry.host());
        let printed = registry.skysail(&["pull", &reference, "--file", &file.display().to_string()])?;
        ensure!(printed.contains(&digest), "skysail pull printed {printed:?}");
        ensure!(fs::read(&file)? == fs::read(&wasm)?, "{reference} is another component than the one that was pushed");
    }

    let reference = format!("{}/org/provider:v1", registry.host());
    let ca = registry.path("ca.pem").display().to_string();
    let config = registry.path("unknown-account.json").display().to_string();
    fs::write(&config, "{}")?;
    let program = skysail()?;
    let pull = ["pull", &reference, "--registry-ca", &ca, "--registry-config", &config];
    let refused = run(&program, &pull).err().context("an unknown account could pull")?;
    ensure!(refused.to_string().contains("rejects the authentication (without credentials)"), "{refused}");
    let refused = run(&program, &["pull", &reference]).err().context("the registry was reached without its CA")?;
    ensure!(refused.to_string().contains("cannot be reached"), "{refused}");
    Ok(())
}

/// What cosign 3 wrote, byte for byte, in a registry that has no referrers API: with a key, then
/// with a certificate instead.
#[tokio::test]
async fn a_component_that_cosign_signed_is_pulled_only_with_its_key_or_identity() -> Result<()> {
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    let registry = Registry::secured().await?;
    let recorded = root().join("runtime/sources/src/oci/tests/cosign");
    let read = |name: &str| fs::read(recorded.join(name)).with_context(|| name.to_owned());
    registry.put_blob(b"{}").await?;
    registry.put_blob(b"component one").await?;
    registry.put_manifest("v1", MANIFEST, &read("artifact.json")?).await?;
    let file = registry.path("pulled.wasm").display().to_string();
    let pull = |flags: &[&str]| {
        let reference = format!("{}/org/provider:v1", registry.host());
        registry.skysail(&[&["pull", &reference, "--file", &file], flags].concat())
    };
    let at = |name: &str| recorded.join(name).display().to_string();
    let (key, trusted_root) = (at("cosign.pub"), at("keyless/root.json"));
    let key = ["--key", &key];
    let identity = |subject| {
        let issuer = ["--certificate-oidc-issuer", "http://127.0.0.1:5081", "--trusted-root", &trusted_root];
        [&["--certificate-identity", subject], &issuer[..]].concat()
    };
    let unsigned = pull(&key).err().context("an unsigned artifact was accepted")?.to_string();
    ensure!(unsigned.contains("sign the artifact with cosign sign"), "{unsigned}");

    // The tag under which what refers to the artifact is listed.
    let listed = digest_of(&recorded.join("artifact.json"))?.replace(':', "-");
    let (signer, stranger) = (identity("release@skysail.example"), identity("release@example.com"));
    for (form, signed_by, not_by) in
        [("v3", &key[..], &signer[..]), ("keyless/log", &signer, &key), ("keyless/log", &signer, &stranger)]
    {
        registry.put_blob(&read(&format!("{form}-bundle.json"))?).await?;
        let manifest = read(&format!("{form}-manifest.json"))?;
        let index: Value = serde_json::from_slice(&read(&format!("{form}-index.json"))?)?;
        let name = index.pointer("/manifests/0/digest").and_then(Value::as_str).context("the index lists nothing")?;
        registry.put_manifest(name, MANIFEST, &manifest).await?;
        registry.put_manifest(&listed, INDEX, &read(&format!("{form}-index.json"))?).await?;
        let printed = pull(signed_by).with_context(|| format!("{form}, by who signed it"))?;
        ensure!(fs::read(&file)? == b"component one", "{printed}");
        fs::remove_file(&file)?;
        let refused = pull(not_by).err().context("an artifact of another signer was accepted")?.to_string();
        ensure!(refused.contains("sign the artifact with the expected keys or identities"), "{refused}");
        ensure!(!fs::exists(&file)?, "the refused component was written to the file");
    }
    Ok(())
}

#[tokio::test]
async fn a_credential_helper_on_the_path_is_used_and_the_error_names_one_that_fails() -> Result<()> {
    let registry = Registry::secured().await?;
    registry.push(&component("dummy")?, "v1")?;
    let answer = r#"{"ServerURL":"","Username":"pilot","Secret":"clear skies"}"#;
    let knows = format!("[ \"$1 $(cat)\" = 'get {}' ] && echo '{answer}'", registry.host());
    for (name, script) in [("knows", &*knows), ("fails", "echo clear skies; exit 1")] {
        let file = registry.path(&format!("docker-credential-{name}"));
        fs::write(&file, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        fs::write(registry.path(name), format!("{{\"credHelpers\": {{\"{}\": \"{name}\"}}}}", registry.host()))?;
    }
    let program = skysail()?.display().to_string();
    let (folder, ca) = (registry.path("").display().to_string(), registry.path("ca.pem").display().to_string());
    let (reference, file) = (format!("{}/org/provider:v1", registry.host()), registry.path("pulled.wasm"));
    let pull = |config: &str| {
        let config = registry.path(config).display().to_string();
        let with_path = ["-c", "PATH=$PATH:$1; shift; exec \"$@\"", "sh", &folder];
        let flags = ["--registry-ca", &ca, "--registry-config", &config, "--file", &file.display().to_string()];
        run("sh", &[&with_path[..], &[&program, "pull", &reference], &flags].concat())
    };
    pull("knows")?;
    ensure!(fs::read(&file)? == fs::read(component("dummy")?)?, "another component than the one that was pushed");
    let refused = pull("fails").err().context("an unknown account could pull")?.to_string();
    ensure!(
        refused.contains("docker-credential-fails, which") && refused.contains("failed; run it by hand"),
        "{refused}"
    );
    ensure!(!refused.contains("clear skies"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_manager_follows_a_tag_and_serves_while_its_registry_is_away_also_after_a_restart() -> Result<()> {
    let cloud = Simulated::start(&["a"]).await?;
    let server = ApiServer::start()?;
    let mut registry = Registry::secured().await?;
    let wasm = component("simcloud")?;
    registry.push(&wasm, "stable")?;

    let provider_file = cloud.provider_file();
    ensure!(provider_file.contains("{file: provider.wasm}"), "another source than before: {provider_file}");
    // Without probation: what serves is kept at once.
    let source = format!("{}\n  rollout: {{probation: {{time: 0s}}}}", registry.source("stable"));
    let provider_file = provider_file.replace("{file: provider.wasm}", &source);
    let [config, ca] = registry.files()?;
    let files = [cloud.token(), (config.0, &config.1), (ca.0, &ca.1)];
    let state = tempfile::tempdir()?;
    let flags = ["--leader-elect=false", &format!("--state-dir={}", state.path().display())];
    let mut manager = Manager::start_with(&flags, &server.kubeconfig(), &wasm, &provider_file, &files).await?;
    let first = manager.release()?;

    manager.offer_another_release()?;
    registry.push(&manager.component(), "stable")?;
    let second = next(&manager, &first).await.map_err(|error| error.context(manager.log_tail()))?;

    registry.stop()?;
    eventually("the manager notices", 120, || {
        std::future::ready(manager.log().contains("RegistryUnreachable").then_some(()).context("nothing is said"))
    })
    .await?;
    ensure!(manager.release()? == second, "another release serves");
    manager.kill()?;
    let lines = manager.log().lines().count();
    manager.start_again()?;
    manager.wait_until_ready().await.map_err(|error| error.context(manager.log_tail()))?;
    let again = manager
        .log()
        .lines()
        .skip(lines)
        .any(|line| line.contains("offering the release that served before the restart"));
    ensure!(again && manager.release()? == second, "after the restart: {}", manager.log_tail());
    let compiled = fs::read_dir(state.path().join("compiled"))?.flatten();
    let compiled = compiled.filter(|file| file.path().extension().is_some_and(|extension| extension == "code")).count();
    ensure!(compiled == 2, "machine code of {compiled} releases is on disk, and two were compiled");

    // The API server, too.
    manager.kill()?;
    let (kubeconfig, lines) = (server.kubeconfig(), manager.log().lines().count());
    let reachable = fs::read_to_string(&kubeconfig)?;
    fs::write(&kubeconfig, unreachable(&reachable)?)?;
    manager.start_again()?;
    let status = manager.ended().await?;
    let log = manager.log();
    let serves = log.lines().skip(lines).any(|line| line.contains("release active") && line.contains(&second));
    ensure!(serves && status.code() == Some(4), "without a cluster: {status}: {}", manager.log_tail());

    fs::write(&kubeconfig, reachable)?;
    manager.start_again()?;
    manager.wait_until_ready().await.map_err(|error| error.context(manager.log_tail()))?;
    registry.start_again().await?;
    manager.offer_another_release()?;
    registry.push(&manager.component(), "stable")?;
    next(&manager, &second).await.map_err(|error| error.context(manager.log_tail()))?;
    manager.still_runs()?;
    let status = manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

/// The same kubeconfig with the address of a server that does not exist.
fn unreachable(kubeconfig: &str) -> Result<String> {
    let (before, rest) = kubeconfig.split_once("server: ").context("the kubeconfig names no server")?;
    let (_, after) = rest.split_once('\n').context("the kubeconfig ends with its server")?;
    Ok(format!("{before}server: https://127.0.0.1:1\n{after}"))
}

/// The digest that serves after this one.
async fn next(manager: &Manager, before: &str) -> Result<String> {
    eventually("the tag's new release serves", 300, || std::future::ready(other_than(before, manager.release()))).await
}

fn other_than(before: &str, release: Result<String>) -> Result<String> {
    let release = release?;
    ensure!(release != before, "{release} still serves");
    Ok(release)
}
