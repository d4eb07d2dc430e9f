//! Releases of one component: the same code and behaviour, each with a digest of its own.

use anyhow::Result;
use bytes::Bytes;
use skysail_sources::Digest;

/// See the module.
pub(super) struct Releases {
    component: Vec<u8>,
}

/// One of them.
#[derive(Clone)]
pub(super) struct Release {
    pub(super) bytes: Bytes,
    pub(super) digest: String,
}

impl Releases {
    pub(super) fn of(component: &str) -> Result<Self> {
        Ok(Self { component: crate::component(component)? })
    }

    /// The component with a custom section of ten bytes.
    pub(super) fn number(&self, number: u32) -> Release {
        // Section 0, six bytes: the length of its name, the name, the number.
        let bytes = Bytes::from([self.component.as_slice(), &[0, 6, 1, b'n'], &number.to_le_bytes()].concat());
        let digest = Digest::of(&bytes).to_string();
        Release { bytes, digest }
    }
}
