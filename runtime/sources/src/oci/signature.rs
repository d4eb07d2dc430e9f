//! Who signed an artifact, in the two forms in which cosign leaves signatures beside it.
//!
//! | written by | where | what is signed |
//! |---|---|---|
//! | cosign 3 | a bundle that refers to the artifact (OCI 1.1 referrers, or the index under the tag `sha256-<hex>`) | an in-toto statement in a DSSE envelope |
//! | cosign 1 and 2 | the layers of the manifest under the tag `sha256-<hex>.sig` | a "simple signing" payload |
//!
//! What is signed has to name the digest that the reference leads to, and to be a signature: an
//! attestation about the same artifact (an SBOM, the report of a scanner) that is signed with the
//! same key says something else. A key (`key`) says who signed, or a certificate that a trusted
//! root confirms about it (`keyless`); the registry's word counts for nothing.
//!
//! # What it does not say
//! That a signature is new, or of which component: an attacker who controls the registry can show
//! anything that one of the keys or identities ever signed. So a key is for one component, and a
//! reference by digest is final.

use std::collections::BTreeSet;

use http::Method;

use super::{
    conversation::{Conversation, Place, Question, verify},
    failure::RegistryFailure,
    manifest::{self, Entry, Layer},
};
use crate::Digest;

mod crypto;
mod key;
mod keyless;
mod policy;
mod statement;

pub use key::{PublicKey, PublicKeyError};
pub use keyless::{Identity, TrustRoot, TrustRootError};
use policy::Signer;
pub use policy::{SignaturePolicy, SignaturePolicyError, Signers};
use statement::{Signed, Unusable};

/// Signatures that are looked at, and manifests and layers of one that are: a registry must not
/// make a pull endless.
const LOOKED_AT_MAX: usize = 64;

/// Pages of one index that are read.
const PAGES_MAX: usize = 16;

/// Largest bundle or payload that is read, in bytes. Those of cosign have a few thousand.
const BYTES_MAX: u64 = 256 << 10;

/// Beginning of the media type of a bundle, whatever its version: `….bundle.v0.3+json`, and before
/// that `….bundle+json;version=0.1`.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// The media type of what older releases of cosign sign.
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Artifact types under which manifests of signatures are listed. A registry without the referrers
/// API has its index written by the client, and those of cosign write the type of the manifest's
/// configuration there; so the layers say what is meant.
const LISTED_AS: [&str; 5] = [
    BUNDLE,
    "application/vnd.dev.cosign.",
    "application/vnd.oci.empty.v1+json",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
];

/// The annotation of a manifest of a bundle that says what its statement is about.
const PREDICATE_ANNOTATION: &str = "dev.sigstore.bundle.predicateType";

/// What was found beside an artifact, as far as it was looked at.
#[derive(Default)]
struct Findings {
    /// Who of the policy signed it.
    signed_by: BTreeSet<Signer>,
    seen: usize,
    /// Why one of them does not count: the last that was looked at.
    unusable: Option<Unusable>,
    /// What could not be had: the first of it.
    failure: Option<RegistryFailure>,
}

/// Fails unless the artifact of this digest is signed as the policy asks.
pub(super) async fn require(
    conversation: &mut Conversation<'_>,
    artifact: Digest,
    policy: &SignaturePolicy,
) -> Result<(), RegistryFailure> {
    let mut search = Search { conversation, artifact, policy, findings: Findings::default() };
    // What is not there, or cannot be had or read, only makes it harder to be content: so the
    // search goes on.
    search.referrers().await;
    if !search.is_done() {
        search.tagged().await;
    }
    let Findings { signed_by, seen, unusable, failure } = search.findings;
    match (seen, failure) {
        _ if signed_by.len() >= policy.required() => Ok(()),
        (0, Some(failure)) => Err(failure),
        // Who has signed may be in what could not be had.
        (_, Some(failure)) if failure.is_of_the_moment() => Err(failure),
        (0, None) => Err(RegistryFailure::Unsigned { artifact }),
        (seen, _) => Err(RegistryFailure::WronglySigned {
            artifact,
            seen,
            signers: signed_by.len(),
            required: policy.required(),
            why: unusable.unwrap_or(Unusable::Again).to_string(),
        }),
    }
}

struct Search<'a, 'b> {
    conversation: &'a mut Conversation<'b>,
    artifact: Digest,
    policy: &'a SignaturePolicy,
    findings: Findings,
}

impl Search<'_, '_> {
    fn is_done(&self) -> bool {
        self.findings.signed_by.len() >= self.policy.required() || self.findings.seen >= LOOKED_AT_MAX
    }

    /// What refers to the artifact.
    async fn referrers(&mut self) {
        let mut entries = self.entries(&format!("referrers/{}", self.artifact)).await;
        if entries.is_empty() {
            // As the distribution specification has it for registries without that API.
            entries = self.entries(&format!("manifests/sha256-{}", self.artifact.hex())).await;
        }
        for entry in entries {
            let layers = self.layers(&format!("manifests/{}", entry.digest), Some(entry.digest)).await;
            self.judge(&layers).await;
            if self.is_done() {
                return;
            }
        }
    }

    /// What older releases of cosign write.
    async fn tagged(&mut self) {
        let layers = self.layers(&format!("manifests/sha256-{}.sig", self.artifact.hex()), None).await;
        self.judge(&layers).await;
    }

    async fn judge(&mut self, layers: &[Layer]) {
        // Each later signature adds a layer: the newest are the last.
        for layer in layers.iter().rev().take(LOOKED_AT_MAX) {
            if layer.kind.starts_with(BUNDLE) {
                if let Some(bundle) = self.blob(layer).await {
                    self.count(statement::of_bundle(&bundle));
                }
            } else if layer.kind == SIMPLE_SIGNING
                && let Some(payload) = self.blob(layer).await
            {
                self.count(statement::of_simple_signing(payload.to_vec(), &layer.annotations));
            }
            if self.is_done() {
                return;
            }
        }
    }

    fn count(&mut self, signed: Result<Signed, Unusable>) {
        self.findings.seen += 1;
        let judged = signed.and_then(|signed| self.policy.judge(&signed, self.artifact));
        match judged {
            Ok(by) => self.findings.signed_by.extend(by),
            Err(why) => self.findings.unusable = Some(why),
        }
    }

    /// Those of an index that may be signatures, as many as are looked at. It may come in pages.
    async fn entries(&mut self, path: &str) -> Vec<Entry> {
        const WHAT: &str = "the index of what refers to the artifact";
        let mut entries = Vec::new();
        let mut next = Place::Path(path);
        for _ in 0..PAGES_MAX {
            let page = self.conversation.page(next, WHAT).await;
            let page = page.and_then(|(text, next)| Ok((manifest::entries(&text)?, next)));
            let Some((page, following)) = self.had(page) else { break };
            entries.extend(page.into_iter().filter(may_sign));
            // Those that say so first: an artifact may have any number of attestations.
            entries.sort_by_key(|entry| predicate(entry).is_none());
            entries.truncate(LOOKED_AT_MAX);
            let Some(following) = following else { break };
            let url = self.conversation.next(path, &following);
            let Some(url) = self.had(url) else { break };
            next = Place::Url(url);
        }
        entries
    }

    async fn layers(&mut self, path: &str, digest: Option<Digest>) -> Vec<Layer> {
        const WHAT: &str = "a signature's manifest";
        let text = self.conversation.manifest(path, (WHAT.to_owned(), WHAT), digest).await;
        let layers = text.and_then(|text| manifest::layers(&text));
        self.had(layers).unwrap_or_default()
    }

    /// None where it could not be had; why is kept, where it is more than that it is not there.
    fn had<T>(&mut self, result: Result<T, RegistryFailure>) -> Option<T> {
        match result {
            Ok(found) => Some(found),
            // Some registries do not know the referrers API and say so in their own way.
            Err(RegistryFailure::NotFound { .. } | RegistryFailure::Status { status: 400 | 405 | 501, .. }) => None,
            Err(failure) => {
                self.findings.failure.get_or_insert(failure);
                None
            }
        }
    }

    /// A bundle or a payload; none where it could not be had, or is longer than any.
    async fn blob(&mut self, layer: &Layer) -> Option<bytes::Bytes> {
        if layer.size > BYTES_MAX {
            self.count(Err(Unusable::TooLarge { size: layer.size, max: BYTES_MAX }));
            return None;
        }
        let blob = self.fetch(layer.digest).await;
        self.had(blob)
    }

    async fn fetch(&mut self, digest: Digest) -> Result<bytes::Bytes, RegistryFailure> {
        const WHAT: &str = "a signature";
        let path = format!("blobs/{digest}");
        let response = self.conversation.ask(Question::new(Method::GET, &path, WHAT)).await?;
        let bytes = self.conversation.read(response, BYTES_MAX, WHAT).await?;
        verify(WHAT, digest, &bytes)?;
        Ok(bytes)
    }
}

/// What its statement is about, where it says so.
fn predicate(entry: &Entry) -> Option<&String> {
    entry.annotations.get(PREDICATE_ANNOTATION)
}

fn may_sign(entry: &Entry) -> bool {
    let listed = entry.kind.is_empty() || LISTED_AS.iter().any(|kind| entry.kind.starts_with(kind));
    listed && predicate(entry).is_none_or(|predicate| predicate == statement::SIGN_PREDICATE)
}
