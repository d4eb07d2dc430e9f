//! Signatures of artifacts: OpenSSL signs, and the signatures are stored in the registry in the
//! format of cosign 1 and 2.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Registry;
use crate::{
    manager::client,
    workspace::{digest_of, run},
};

/// The media type of most manifests.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

impl Registry {
    /// Signs an artifact of `org/provider`, which is named by its manifest's digest, with a private
    /// key on P-256.
    ///
    /// # Errors
    /// OpenSSL is missing, or the registry refuses the signature.
    pub async fn sign(&self, artifact: &str, key: &Path) -> Result<()> {
        let payload = json!({
            "critical": {
                "identity": { "docker-reference": format!("{}/org/provider", self.host()) },
                "image": { "docker-manifest-digest": artifact },
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string();
        let (file, signature) = (self.path("payload.json"), self.path("payload.sig"));
        fs::write(&file, &payload)?;
        let [key, file, signature] = [key, &file, &signature].map(|path| path.display().to_string());
        run("openssl", &["dgst", "-sha256", "-sign", &key, "-out", &signature, &file])?;
        let signature = run("openssl", &["base64", "-A", "-in", &signature])?;
        let (config, layer) = (self.put_blob(b"{}").await?, self.put_blob(payload.as_bytes()).await?);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": config, "size": 2 },
            "layers": [{ "mediaType": PAYLOAD, "digest": layer, "size": payload.len(), "annotations": { SIGNATURE: signature } }],
        });
        let tag = format!("{}.sig", artifact.replace(':', "-"));
        self.put_manifest(&tag, MANIFEST, manifest.to_string().as_bytes()).await
    }

    /// Stores a manifest of this media type in `org/provider`, under a tag or its digest.
    ///
    /// # Errors
    /// The registry refuses the manifest.
    pub async fn put_manifest(&self, name: &str, media_type: &str, bytes: &[u8]) -> Result<()> {
        let put = self.request("PUT", &format!("{}/manifests/{name}", self.api()))?;
        put.header("content-type", media_type).body(bytes.to_vec()).send().await?.error_for_status()?;
        Ok(())
    }

    /// Stores a blob in `org/provider` and returns its digest.
    ///
    /// # Errors
    /// The registry refuses the blob.
    pub async fn put_blob(&self, bytes: &[u8]) -> Result<String> {
        let file = self.path("blob");
        fs::write(&file, bytes)?;
        let digest = digest_of(&file)?;
        let begun =
            self.request("POST", &format!("{}/blobs/uploads/", self.api()))?.send().await?.error_for_status()?;
        let place = begun.headers().get("location").context("the registry names no place for a blob")?.to_str()?;
        let put = self.request("PUT", &format!("{place}&digest={digest}"))?;
        put.body(bytes.to_vec()).send().await?.error_for_status()?;
        Ok(digest)
    }

    fn api(&self) -> String {
        let scheme = if self.secured { "https" } else { "http" };
        format!("{scheme}://{}/v2/org/provider", self.host())
    }

    fn request(&self, method: &str, url: &str) -> Result<reqwest::RequestBuilder> {
        Ok(client()?.request(method.parse()?, url).basic_auth("pilot", Some("clear skies")))
    }
}
