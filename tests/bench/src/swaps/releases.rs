//! Releases of one component, or of several in turn, with the same behaviour and different digests.

use anyhow::{Result, ensure};
use bytes::Bytes;
use skysail_sources::Digest;

/// See the module.
pub(super) struct Releases {
    components: Vec<Vec<u8>>,
}

/// One release.
#[derive(Clone)]
pub(super) struct Release {
    pub(super) bytes: Bytes,
    pub(super) digest: String,
}

impl Releases {
    pub(super) fn of(components: &[String]) -> Result<Self> {
        ensure!(!components.is_empty(), "no component is named for the swaps");
        Ok(Self { components: components.iter().map(|name| crate::component(name)).collect::<Result<_>>()? })
    }

    /// The next component, with a custom section of ten bytes.
    pub(super) fn number(&self, number: u32) -> Release {
        let component = self.components.get(number as usize % self.components.len());
        // Section 0, six bytes: the length of its name, the name, the number.
        let section = [&[0, 6, 1, b'n'][..], &number.to_le_bytes()].concat();
        let bytes = Bytes::from([component.map_or(&[][..], Vec::as_slice), &section].concat());
        let digest = Digest::of(&bytes).to_string();
        Release { bytes, digest }
    }
}
