//! Rotation of a token, and a signature policy that is added while a release serves.

use k8s_openapi::jiff::Timestamp;

use super::*;

/// The cloud's token is rotated and then the Secret: the new token is used without a swap.
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
        .map_err(|error| error.context(world.manager.log_tail()))?;
    before_the_next_try(world).await?;
    let after = world.object()?;
    for place in ["/status/active", "/status/swaps", "/metadata/generation"] {
        let [before, after] = [&before, &after].map(|object| object.pointer(place));
        ensure!(before.is_some() && before == after, "{place} was {before:?} and is {after:?}");
    }
    delete_service(&world.client, "rotated").await
}

/// Regression: after a rotation of the credential a denied Service waited for its next try, which
/// the log announces.
///
/// The line of a call in the log names no object, so the Event of this Service tells when its
/// `ensure` succeeded, or a little later.
async fn before_the_next_try(world: &World) -> Result<()> {
    let denied = |line: &Value| line["object.name"] == "rotated" && line["controller.outcome"] == "Denied";
    let denied = world.manager.lines(denied).pop().context("no line announces the next try")?;
    let wait: f64 = at(&denied, "/controller.next_try").trim_end_matches('s').parse()?;
    let ensured = eventually("the Event of the Service", PATIENCE, || std::future::ready(ensured(world))).await?;
    // An Event has whole seconds.
    let took = ensured.duration_since(at(&denied, "/timestamp").parse()?).as_secs_f64() + 1.0;
    ensure!(took < wait, "the Service was tried again after {took} s, no earlier than the announced {wait} s");
    Ok(())
}

/// When the one successful `ensure` of the Service `rotated` was reported.
fn ensured(world: &World) -> Result<Timestamp> {
    let about = "involvedObject.kind=Service,involvedObject.name=rotated,reason=EnsuredLoadBalancer";
    let events =
        world.server.kubectl(&["get", "events", "--field-selector", about, "-o", "custom-columns=:.firstTimestamp"])?;
    events.trim().parse().with_context(|| format!("not one Event about {about}: {events:?}"))
}

/// A signature policy that no artifact fulfils: the current artifact is refused, and so is the next
/// one until it is signed.
pub(super) async fn unsigned(world: &World, serving: &str) -> Result<()> {
    let key = run("openssl", &["ecparam", "-name", "prime256v1", "-genkey", "-noout"])?;
    let file = world.folder.path().join("key.pem");
    fs::write(&file, key)?;
    let public = run("openssl", &["ec", "-pubout", "-in", &file.display().to_string()])?;
    world.patch(&json!({ "spec": { "source": { "oci": { "signatures": { "keys": [{ "pem": public }] } } } } }))?;
    let status = world.until("it is refused", |status| at(status, "/sourceFailure/code") == "ArtifactUnsigned").await?;
    let reason = at(&status, "/sourceFailure/reason");
    ensure!(reason.contains("sign"), "{reason}");
    // A good component without a signature is refused, too.
    let good = world.marked(&component("simcloud")?, 4)?;
    let artifact = world.registry.push(&good, "stable")?;
    let is_another = |status: &Value| at(status, "/sourceFailure/reason") != reason;
    let status = world.until("the next artifact is refused", is_another).await?;
    ensure!(at(&status, "/sourceFailure/code") == "ArtifactUnsigned", "{status:#}");
    ensure!(at(&status, "/active/digest") == serving && is(&status, "Ready", "True"), "{status:#}");
    // The signature does not move the tag.
    world.registry.sign(&artifact, &file).await?;
    let status = world.until_serving(&digest_of(&good)?).await?;
    ensure!(status.get("sourceFailure").is_none() && is(&status, "Ready", "True"), "{status:#}");
    Ok(())
}
