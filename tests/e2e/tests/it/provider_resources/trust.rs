//! Whom the cloud believes, and whom the operator: tokens and signatures, exchanged and asked for
//! while a release serves.

use super::*;

/// The cloud takes another token, and no longer the one before; the Secret follows. Nothing is
/// swapped for it.
pub(super) async fn rotated(world: &World) -> Result<()> {
    let before = world.object()?;
    let token = world.cloud.cloud.renew_token();
    create_service(&world.client, "rotated", 8090, NODE_PORT + 900).await?;
    eventually("the cloud refuses the token", PATIENCE, || {
        let refused = world.cloud.cloud.requests().iter().any(|request| request.status == 401);
        std::future::ready(if refused { Ok(()) } else { Err("no request had 401") })
    })
    .await?;
    world.server.kubectl(&[
        "patch",
        "secret",
        "cloud",
        "--type=merge",
        "-p",
        &json!({ "stringData": { "token": token } }).to_string(),
    ])?;
    eventually("the Service gets an address", PATIENCE, || address_of(&world.client, "rotated"))
        .await
        .map_err(|error| error.context(world.manager.last_words()))?;
    let after = world.object()?;
    for place in ["/status/active", "/status/swaps", "/metadata/generation"] {
        let [before, after] = [&before, &after].map(|object| object.pointer(place));
        ensure!(before.is_some() && before == after, "{place} was {before:?} and is {after:?}");
    }
    delete_service(&world.client, "rotated").await
}

/// A policy that nothing fulfils yet: what is there is refused, and so is the next release until
/// somebody signs it.
pub(super) async fn unsigned(world: &World, serving: &str) -> Result<()> {
    let key = run("openssl", &["ecparam", "-name", "prime256v1", "-genkey", "-noout"])?;
    let file = world.folder.path().join("key.pem");
    fs::write(&file, key)?;
    let public = run("openssl", &["ec", "-pubout", "-in", &file.display().to_string()])?;
    world.patch(&json!({ "spec": { "source": { "oci": { "signatures": { "keys": [{ "pem": public }] } } } } }))?;
    let status = world.until("it is refused", |status| at(status, "/sourceFailure/code") == "ArtifactUnsigned").await?;
    let reason = at(&status, "/sourceFailure/reason");
    ensure!(reason.contains("sign"), "{reason}");
    // A good one is refused, too.
    let good = world.marked(&component("simcloud")?, 4)?;
    let artifact = world.registry.push(&good, "stable")?;
    let is_another = |status: &Value| at(status, "/sourceFailure/reason") != reason;
    let status = world.until("the next one is looked at", is_another).await?;
    ensure!(at(&status, "/sourceFailure/code") == "ArtifactUnsigned", "{status:#}");
    ensure!(at(&status, "/active/digest") == serving && is(&status, "Ready", "True"), "{status:#}");
    // The tag does not move for it.
    world.registry.sign(&artifact, &file).await?;
    let status = world.until_serving(&digest_of(&good)?).await?;
    ensure!(status.get("sourceFailure").is_none() && is(&status, "Ready", "True"), "{status:#}");
    Ok(())
}
