//! How far a release has come, and every way on from there: one type, one table.

use serde::Serialize;

use super::Reason;
use crate::admission::RefusalCode;

#[cfg(test)]
mod tests;

/// The stages of a release, in order; a failure on the way ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Its bytes are here.
    Offered,
    /// It is a component of the contract, within its size.
    Verified,
    /// There is machine code.
    Compiled,
    /// Every import is met, every export has its type.
    Linked,
    /// It said who it is, and it is who its predecessor was.
    Described,
    /// It accepts the cloud-config.
    ConfigChecked,
    /// It was asked what its predecessor was asked, where the operator wants that. Where not, it is
    /// here at once.
    Shadowed,
    /// It serves a share of the objects.
    Canary,
    /// It serves.
    Active,
}

/// One way on from a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It has reached this one.
    To(Stage),
    /// It ends.
    Refused(Reason),
}

impl Step {
    /// Whether the table has one line for both.
    pub(super) fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Refused(Reason::Admission(_)), Self::Refused(Reason::Admission(_))) => true,
            (one, other) => one == other,
        }
    }
}

/// The only ways of a release that is met for the first time. One that was refused before and is
/// offered again takes none: it gets the same refusal again. A predecessor that serves again, and a
/// release that is replaced, are the other side of these exchanges. Of the codes of
/// [`Reason::Admission`] one stands for all.
#[rustfmt::skip]
pub(super) const EDGES: [(Stage, Step); 32] = {
    use Reason::{
        Admission, CheckConfigFailed, CompileFailed, CompileLimit, CompileUnavailable, ConfigRefused, DescribeFailed, EgressNotAllowed,
        IdentityChanged, InterfaceLost, LinkFailed, NoProviderIdScheme, ProbationErrors, ProbationLimit, ProbationTrap,
        ShadowBroken, ShadowDiffers,
    };
    use Stage::{Active, Canary, Compiled, ConfigChecked, Described, Linked, Offered, Shadowed, Verified};
    use Step::{Refused, To};
    [
        (Offered, To(Verified)),
        (Offered, Refused(Admission(RefusalCode::Malformed))),
        (Offered, Refused(CompileLimit)),
        (Offered, Refused(CompileFailed)),
        (Offered, Refused(CompileUnavailable)),
        (Verified, To(Compiled)),
        (Verified, Refused(CompileLimit)),
        (Verified, Refused(CompileFailed)),
        (Verified, Refused(CompileUnavailable)),
        (Compiled, To(Linked)),
        (Compiled, Refused(LinkFailed)),
        (Linked, To(Described)),
        (Linked, Refused(DescribeFailed)),
        (Linked, Refused(NoProviderIdScheme)),
        (Linked, Refused(EgressNotAllowed)),
        (Linked, Refused(InterfaceLost)),
        (Linked, Refused(IdentityChanged)),
        (Described, To(ConfigChecked)),
        (Described, Refused(CheckConfigFailed)),
        (Described, Refused(ConfigRefused)),
        (ConfigChecked, To(Shadowed)),
        (ConfigChecked, Refused(ShadowBroken)),
        (ConfigChecked, Refused(ShadowDiffers)),
        (Shadowed, To(Canary)),
        (Shadowed, To(Active)),
        (Canary, To(Active)),
        (Canary, Refused(ProbationTrap)),
        (Canary, Refused(ProbationLimit)),
        (Canary, Refused(ProbationErrors)),
        (Active, Refused(ProbationTrap)),
        (Active, Refused(ProbationLimit)),
        (Active, Refused(ProbationErrors)),
    ]
};

impl Stage {
    /// What a release at this stage is on its way to; none where it waits for nothing.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        EDGES.into_iter().find_map(|(from, step)| match step {
            Step::To(to) if from == self => Some(to),
            Step::To(_) | Step::Refused(_) => None,
        })
    }

    /// Whether the table has this way.
    pub(super) fn leads(self, step: Step) -> bool {
        EDGES.into_iter().any(|(from, known)| from == self && known.is(step))
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
