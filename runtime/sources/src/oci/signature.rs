//! Verifies the signatures of an artifact, in the two forms that cosign writes.
//!
//! | written by | where | what is signed |
//! |---|---|---|
//! | cosign 3 | a bundle that refers to the artifact (OCI 1.1 referrers, or the index under the tag `sha256-<hex>`) | an in-toto statement in a DSSE envelope |
//! | cosign 1 and 2 | the layers of the manifest under the tag `sha256-<hex>.sig` | a "simple signing" payload |
//!
//! The signed statement has to name the digest of the artifact and to be a signature: an
//! attestation about the same artifact (an SBOM, a scan report) with the same key does not count. A
//! signer is identified by a public key (`key`) or by a certificate that a trusted root verifies
//! (`keyless`), never by data of the registry.
//!
//! # What a signature does not prove
//! A signature does not prove that it is recent, or for which component it was made: an attacker
//! who controls the registry can serve any artifact that one of the keys or identities has ever
//! signed. So use a key for one component only, or a reference by digest.

use std::collections::BTreeSet;

use http::Method;

use super::{
    conversation::{Conversation, Place, Question, verify},
    manifest::{self, Entry, Layer},
};
use crate::{Digest, error::RegistryFailure};

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

/// The most signatures, manifests and layers that are checked: a registry must not make a pull
/// endless.
const LOOKED_AT_MAX: usize = 64;

/// The most pages of one index that are read.
const PAGES_MAX: usize = 16;

/// Largest bundle or payload that is read, in bytes. Those of cosign have a few thousand.
const BYTES_MAX: u64 = 256 << 10;

/// The beginning of the media type of a bundle in every version: `….bundle.v0.3+json`, and the
/// older `….bundle+json;version=0.1`.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// The media type of the payload that cosign 1 and 2 sign.
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Artifact types under which indexes list signature manifests. For a registry without the
/// referrers API the client writes the index, and cosign writes the media type of the manifest's
/// config there; so the layers decide.
const LISTED_AS: [&str; 5] = [
    BUNDLE,
    "application/vnd.dev.cosign.",
    "application/vnd.oci.empty.v1+json",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
];

/// The manifest annotation with the predicate type of a bundle's statement.
const PREDICATE_ANNOTATION: &str = "dev.sigstore.bundle.predicateType";

/// The signatures of an artifact that were checked so far.
#[derive(Default)]
struct CheckedSignatures {
    /// The signers of the policy with a valid signature.
    signed_by: BTreeSet<Signer>,
    seen: usize,
    /// Those of `seen` that are at the present place.
    seen_here: usize,
    /// Why the last invalid signature does not count.
    unusable: Option<Unusable>,
    /// The first failure of a request.
    failure: Option<RegistryFailure>,
}

/// Fails unless the signatures of the artifact fulfil the policy.
pub(super) async fn require(
    conversation: &mut Conversation<'_>,
    artifact: Digest,
    policy: &SignaturePolicy,
) -> Result<(), RegistryFailure> {
    let mut search = Search { conversation, artifact, policy, checked: CheckedSignatures::default() };
    // The search continues after a failure, because other signatures may suffice.
    search.referrers().await;
    // Anybody who may push a referrer could otherwise hide the signatures at the tag.
    search.checked.seen_here = 0;
    if !search.is_done() {
        search.tagged().await;
    }
    let CheckedSignatures { signed_by, seen, seen_here: _, unusable, failure } = search.checked;
    match (seen, failure) {
        _ if signed_by.len() >= policy.required() => Ok(()),
        (0, Some(failure)) => Err(failure),
        // A missing signature may be in an answer that failed.
        (_, Some(failure)) if failure.is_transient() => Err(failure),
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
    checked: CheckedSignatures,
}

impl Search<'_, '_> {
    fn is_done(&self) -> bool {
        self.checked.signed_by.len() >= self.policy.required() || self.checked.seen_here >= LOOKED_AT_MAX
    }

    /// Checks the bundles that refer to the artifact.
    async fn referrers(&mut self) {
        let mut entries = self.entries(&format!("referrers/{}", self.artifact)).await;
        if entries.is_empty() {
            // The fallback tag of the distribution specification, for registries without that API.
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

    /// Checks the signatures that cosign 1 and 2 write.
    async fn tagged(&mut self) {
        let layers = self.layers(&format!("manifests/sha256-{}.sig", self.artifact.hex()), None).await;
        self.judge(&layers).await;
    }

    async fn judge(&mut self, layers: &[Layer]) {
        // Each new signature adds a layer, so the newest are last.
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
        self.checked.seen += 1;
        self.checked.seen_here += 1;
        let judged = signed.and_then(|signed| self.policy.judge(&signed, self.artifact));
        match judged {
            Ok(by) => self.checked.signed_by.extend(by),
            Err(why) => self.checked.unusable = Some(why),
        }
    }

    /// The entries of an index, which may have several pages, that may be signatures; at most
    /// [`LOOKED_AT_MAX`].
    async fn entries(&mut self, path: &str) -> Vec<Entry> {
        const WHAT: &str = "the index of the artifact's referrers";
        let mut entries = Vec::new();
        let mut next = Place::Path(path);
        for _ in 0..PAGES_MAX {
            let page = self.conversation.page(next, WHAT).await;
            let page = page.and_then(|(text, next)| Ok((manifest::entries(&text)?, next)));
            let Some((page, following)) = self.had(page) else { break };
            entries.extend(page.into_iter().filter(may_sign));
            // Entries that are declared as signatures come first, because an artifact may have any
            // number of attestations.
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

    /// Keeps the first failure, unless it means that the content does not exist; returns the
    /// success.
    fn had<T>(&mut self, result: Result<T, RegistryFailure>) -> Option<T> {
        match result {
            Ok(found) => Some(found),
            // Registries without the referrers API answer with different statuses.
            Err(RegistryFailure::NotFound { .. } | RegistryFailure::Status { status: 400 | 405 | 501, .. }) => None,
            Err(failure) => {
                self.checked.failure.get_or_insert(failure);
                None
            }
        }
    }

    /// A bundle or a payload; `None` if it cannot be fetched or exceeds [`BYTES_MAX`].
    async fn blob(&mut self, layer: &Layer) -> Option<bytes::Bytes> {
        if layer.size > BYTES_MAX {
            self.count(Err(Unusable::TooLarge { size: layer.size, max: BYTES_MAX }));
            return None;
        }
        let blob = self.fetch(layer.digest).await;
        if blob.is_err() {
            self.checked.seen_here += 1;
        }
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

/// The predicate type in the entry's annotations.
fn predicate(entry: &Entry) -> Option<&String> {
    entry.annotations.get(PREDICATE_ANNOTATION)
}

fn may_sign(entry: &Entry) -> bool {
    let listed = entry.kind.is_empty() || LISTED_AS.iter().any(|kind| entry.kind.starts_with(kind));
    listed && predicate(entry).is_none_or(|predicate| predicate == statement::SIGN_PREDICATE)
}
