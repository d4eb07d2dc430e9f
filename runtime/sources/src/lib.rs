//! Sources of components: files, ConfigMaps and OCI registries.
//!
//! A source watches one place and yields a [`SourceFile`], a whole file with its digest, whenever
//! the digest changes. A source knows nothing of WebAssembly. It checks only what it needs to read
//! safely: the size, the kind of file, and whether a writer has finished. The receiver decides
//! whether to accept an offer.
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
pub use config_map::{ConfigMapReference, ConfigMapSource};
pub use digest::{Digest, DigestError};
pub use error::{ConfigMapFailure, DIGEST_ANNOTATION, RegistryFailure, SourceError, TargetRefusal};
pub use file::{FileSource, FileSourceSettings};
pub use oci::{
    AddressJudge, Artifact, DockerConfig, Identity, OciSource, OciSourceSettings, PublicKey, PublicKeyError,
    PullOptions, Pulled, Registry, RegistryCredentials, RegistryOptions, RegistryOptionsError, SignaturePolicy,
    SignaturePolicyError, Signers, TrustRoot, TrustRootError,
};
pub use oci_spec::distribution::{ParseError as ReferenceError, Reference};
pub use offer::{Offers, SourceFile};
