//! Where a component's bytes come from.
//!
//! A source watches one place and yields [`Offer`]s: whole files with their digest, and only when
//! the digest changed. It knows nothing of WebAssembly and judges nothing but what it needs to read
//! safely: size, kind of file, and whether a writer is still at work. What an offer is worth is
//! decided by its receiver.
//!
//! Read [`FileSource`] first.

mod archive;
mod config_map;
mod digest;
mod error;
mod file;
mod oci;
mod offer;
mod text;

pub use archive::{Archive, ArchiveError, Quarantined};
pub use config_map::{ConfigMapFailure, ConfigMapReference, ConfigMapSource, DIGEST_ANNOTATION};
pub use digest::{Digest, DigestError};
pub use error::SourceError;
pub use file::{FileSource, FileSourceSettings};
pub use oci::{
    AddressJudge, Artifact, Astray, Credentials, DockerConfig, Identity, OciSource, OciSourceSettings, PublicKey,
    PublicKeyError, PullOptions, Pulled, Registry, RegistryFailure, RegistryOptions, RegistryOptionsError,
    SignaturePolicy, SignaturePolicyError, Signers, TrustRoot, TrustRootError,
};
pub use oci_spec::distribution::{ParseError as ReferenceError, Reference};
pub use offer::{Offer, Offers};
