//! `skysail pull`: pulls a component from a registry, checks its digest and writes a file.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use skysail_host::write_file;
use skysail_sources::{Identity, PublicKey, PullOptions, Pulled, Reference, SignaturePolicy, Signers, TrustRoot};

use super::registry;
use crate::{
    args::{CertificateArgs, OutputFormat, PullArgs},
    exit::{MarkExt as _, Reason},
    output, output_file, text_file,
};

/// Pulls the component, writes the file and prints its digest.
///
/// # Errors
/// The registry does not have the component, or the file cannot be written.
pub(crate) fn run(args: PullArgs) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(pull(args))
}

async fn pull(args: PullArgs) -> anyhow::Result<()> {
    let PullArgs { reference, file, output, key, certificate, registry } = args;
    if let Some(file) = &file {
        output_file::check("--file", file).or_exit(Reason::Usage)?;
    }
    let bytes_max = registry.component_bytes;
    let (reference, registry) = registry::open(&reference, registry)?;
    let signatures = signatures(&key, certificate).or_exit(Reason::Usage)?;
    let options = PullOptions { bytes_max, timeout: registry::TIMEOUT, signatures };
    let pulled = registry.pull(&reference, None, &options).await.map_err(registry::with_remedy);
    let pulled = pulled.with_context(|| format!("cannot pull {reference}"))?;
    let Pulled { bytes, digest, manifest } = pulled.context("the registry has nothing new")?;
    let file = file.unwrap_or_else(|| named(&reference));
    write_file(&file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
    let (size, file) = (bytes.len(), output::plain(&file.to_string_lossy()));
    output::print(
        match output {
            OutputFormat::Text => format!("{file}\ncomponent {digest}, {size} bytes, manifest {manifest}\n"),
            OutputFormat::Json => {
                let value = json!({
                    "file": file, "component": digest.to_string(), "manifest": manifest.to_string(), "size": size,
                });
                output::json(&value)?
            }
        }
        .as_bytes(),
    )
}

/// The policy that all named keys and identities must have signed; `None` if none is named.
fn signatures(files: &[PathBuf], certificate: CertificateArgs) -> anyhow::Result<Option<SignaturePolicy>> {
    let mut signers = Signers::default();
    for file in files {
        let pem = text_file::read("--key", file, "a PEM public key, as cosign public-key prints it")?;
        let key = PublicKey::from_pem(&pem).map_err(|error| anyhow!("--key: {} holds {error}", file.display()))?;
        signers.keys.push(key);
    }
    let CertificateArgs { certificate_identity, certificate_oidc_issuer, trusted_root } = certificate;
    if let (Some(subject), Some(issuer)) = (certificate_identity, certificate_oidc_issuer) {
        signers.identities.push(Identity { issuer, subject });
    }
    if let Some(file) = trusted_root {
        let shown = file.display();
        let json = text_file::read("--trusted-root", &file, "a trusted root in JSON")?;
        let root = TrustRoot::from_json(&json).map_err(|error| anyhow!("--trusted-root: {shown} is {error}"))?;
        signers.trust_root = Some(root);
    }
    let count = signers.keys.len() + signers.identities.len();
    if count == 0 {
        return Ok(None);
    }
    let flags = if signers.identities.is_empty() { "--key" } else { "--certificate-identity" };
    Ok(Some(SignaturePolicy::new(signers, count).context(flags)?))
}

fn named(reference: &Reference) -> PathBuf {
    let name = reference.repository().rsplit('/').next().unwrap_or("provider");
    PathBuf::from(format!("{name}.wasm"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::signatures;
    use crate::args::CertificateArgs;

    const ROOT: &str = include_str!("../../../sources/src/oci/tests/cosign/keyless/root.json");

    fn by(trusted_root: PathBuf) -> CertificateArgs {
        CertificateArgs {
            certificate_identity: Some("release@example.com".to_owned()),
            certificate_oidc_issuer: Some("https://issuer.example".to_owned()),
            trusted_root: Some(trusted_root),
        }
    }

    #[test]
    fn every_named_key_and_identity_must_have_signed() {
        let folder = tempfile::tempdir().unwrap();
        let [root, key] = ["root.json", "cosign.pub"].map(|name| folder.path().join(name));
        fs::write(&root, ROOT).unwrap();
        fs::write(&key, include_str!("../../../sources/src/oci/tests/cosign/cosign.pub")).unwrap();
        let none = CertificateArgs { certificate_identity: None, certificate_oidc_issuer: None, trusted_root: None };
        assert!(signatures(&[], none).unwrap().is_none());
        let one = signatures(&[], by(root.clone())).unwrap().unwrap().to_string();
        assert!(one.starts_with(r#"1 of "release@example.com" of "https://issuer.example" by sha256:"#), "{one}");
        let both = signatures(&[key], by(root)).unwrap().unwrap().to_string();
        assert!(both.starts_with("2 of sha256:"), "{both}");
    }

    #[test]
    fn an_error_about_an_invalid_trusted_root_names_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root.json");
        let error = |root: &PathBuf| format!("{:#}", signatures(&[], by(root.clone())).unwrap_err());
        assert!(error(&root).starts_with("--trusted-root: cannot read "), "{}", error(&root));
        fs::write(&root, "{}").unwrap();
        assert!(error(&root).contains("root.json is not a trusted root (failed to parse JSON"), "{}", error(&root));
    }
}
