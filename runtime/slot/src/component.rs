//! The file that a source offers, and its digest.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// A component that a source hands to a slot.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The `.wasm` file, not yet judged.
    pub bytes: Bytes,
    /// Where the component came from, for people: `file /etc/skysail/provider.wasm`.
    pub origin: String,
}

/// An offer with its digest, which is computed once.
#[derive(Clone, Debug)]
pub struct Component {
    /// The offer.
    pub offer: Offer,
    /// The SHA-256 of the bytes.
    pub hash: [u8; 32],
    /// The hash as text: `sha256:…`.
    pub digest: Arc<str>,
}

impl Component {
    /// Computes the digest.
    #[must_use]
    pub fn new(offer: Offer) -> Self {
        let hash = digest_of(&offer.bytes);
        Self { offer, hash, digest: digest_text(&hash).into() }
    }
}

/// SHA-256 of a component: the identity of a release.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The text form of a digest: `sha256:` and 64 hexadecimal digits.
#[must_use]
pub fn digest_text(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}
