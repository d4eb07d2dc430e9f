//! How far a release has come.

use serde::Serialize;

/// The stages of a release, in order. A refusal ends the release at the stage it has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// The slot has the bytes.
    Offered,
    /// The bytes are a component of the contract, within its size.
    Verified,
    /// There is machine code.
    Compiled,
    /// Every import is met, every export has its type.
    Linked,
    /// The release described itself, and its identity is that of its predecessor.
    Described,
    /// The release accepts the cloud-config.
    ConfigChecked,
    /// The release was asked what its predecessor was asked, where the operator wants that;
    /// otherwise a release reaches this stage at once.
    Shadowed,
    /// The release serves a share of the objects.
    Canary,
    /// The release serves all objects.
    Active,
}

impl Stage {
    /// The stage after this one; none after the last.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Some(match self {
            Self::Offered => Self::Verified,
            Self::Verified => Self::Compiled,
            Self::Compiled => Self::Linked,
            Self::Linked => Self::Described,
            Self::Described => Self::ConfigChecked,
            Self::ConfigChecked => Self::Shadowed,
            Self::Shadowed => Self::Canary,
            Self::Canary => Self::Active,
            Self::Active => return None,
        })
    }

    /// camelCase: metric label and log field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::Verified => "verified",
            Self::Compiled => "compiled",
            Self::Linked => "linked",
            Self::Described => "described",
            Self::ConfigChecked => "configChecked",
            Self::Shadowed => "shadowed",
            Self::Canary => "canary",
            Self::Active => "active",
        }
    }
}
