//! Where a component's bytes come from.
//!
//! A source watches one place and yields [`Offer`]s: whole files with their digest, and only when the digest changed. It knows nothing of
//! WebAssembly and judges nothing but what it needs to read safely: size, kind of file, and whether a writer is still at work. What an
//! offer is worth is decided by whoever takes it.
//!
//! Read [`FileSource`] first.

mod digest;
mod error;
mod file;
mod offer;

pub use digest::Digest;
pub use error::SourceError;
pub use file::{FileSource, FileSourceSettings};
pub use offer::{Offer, Offers};
