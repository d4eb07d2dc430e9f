//! The webhook that labels volumes: a real API server calls the manager, which calls a real
//! component.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::PersistentVolume},
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;
use skysail_dev::cloud::NewVolume;
use skysail_test_e2e::{api_server::ApiServer, manager::Manager, workspace::component};
use skysail_test_support::ports;

use crate::simulated::Simulated;

#[tokio::test]
async fn a_new_volume_gets_the_zone_of_its_disk_and_an_unknown_one_is_refused() -> Result<()> {
    let cloud = Simulated::start(&["a"]).await?;
    let new = NewVolume { name: "data".to_owned(), zone: Some("zone-b".to_owned()), size_gib: 1, tags: [].into() };
    let disk = cloud.cloud.create_volume(new)?;
    let server = ApiServer::start()?;
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let port = ports::free()?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let folder = tempfile::tempdir()?;
    let [certificate_file, key_file] = [("tls.crt", &certificate), ("tls.key", &key)].map(|(name, text)| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).map(|()| path)
    });
    let flags = [
        "--leader-elect=false".to_owned(),
        "--feature-gates=CloudControllerManagerWebhook=true".to_owned(),
        "--webhooks=persistentvolumelabel".to_owned(),
        "--webhook-bind-address=127.0.0.1".to_owned(),
        format!("--webhook-secure-port={port}"),
        format!("--webhook-tls-cert-file={}", certificate_file?.display()),
        format!("--webhook-tls-private-key-file={}", key_file?.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let wasm = component("simcloud")?;
    let manager =
        Manager::start_with(&flags, &server.kubeconfig(), &wasm, &cloud.provider_file(), &[cloud.token()]).await?;

    let client = server.client().await?;
    let mut hook: MutatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": { "name": "skysail" },
        "webhooks": [{
            "name": "persistentvolumelabel.skysail.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": { "url": format!("https://127.0.0.1:{port}/persistentvolumelabel") },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["persistentvolumes"] }],
        }],
    }))?;
    for webhook in hook.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(ByteString(certificate.clone().into_bytes()));
    }
    Api::<MutatingWebhookConfiguration>::all(client.clone()).create(&PostParams::default(), &hook).await?;

    let volumes = Api::<PersistentVolume>::all(client);
    // The API server uses a new webhook after about a second; until then volumes have no labels.
    let mut turn = 0;
    let labelled = skysail_test_e2e::wait::eventually("a new volume is labelled", 120, || {
        turn += 1;
        let volume = volume(&format!("data-{turn}"), &disk.id);
        async {
            let made = volumes.create(&PostParams::default(), &volume?).await?;
            ensure!(made.labels().contains_key("topology.kubernetes.io/zone"), "the labels are {:?}", made.labels());
            Ok(made)
        }
    });
    let labelled = labelled.await.map_err(|error| error.context(manager.log_tail()))?;
    ensure!(labelled.labels()["topology.kubernetes.io/zone"] == "zone-b", "{:?}", labelled.labels());
    let spec = labelled.spec.context("it has no spec")?;
    ensure!(spec.node_affinity.is_some(), "pods may be scheduled where the disk is not");
    let refused = volumes.create(&PostParams::default(), &volume("nothing", "d-4711")?).await;
    ensure!(refused.is_err(), "a volume without a disk was accepted: {refused:?}");
    let status = manager.end().await?;
    ensure!(status.success(), "the manager ended with {status}");
    Ok(())
}

fn volume(name: &str, handle: &str) -> Result<PersistentVolume> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "simcloud.skysail.dev", "volumeHandle": handle },
        },
    }))?)
}
