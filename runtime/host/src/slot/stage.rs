//! How far a release has come: one type, one table.

use serde::Serialize;

/// The stages of a release, in order. Each is reached from the one before it and from no other; a failure on the way ends the release.
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
    /// It serves.
    Active,
}

/// The only transitions.
const TRANSITIONS: [(Stage, Stage); 6] = [
    (Stage::Offered, Stage::Verified),
    (Stage::Verified, Stage::Compiled),
    (Stage::Compiled, Stage::Linked),
    (Stage::Linked, Stage::Described),
    (Stage::Described, Stage::ConfigChecked),
    (Stage::ConfigChecked, Stage::Active),
];

impl Stage {
    /// What a release at this stage is on its way to; none for the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        TRANSITIONS.into_iter().find(|(from, _)| *from == self).map(|(_, to)| to)
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
            Self::Active => "active",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stage;

    #[test]
    fn the_table_leads_from_offered_to_active_through_every_stage_once() {
        let way: Vec<_> = std::iter::successors(Some(Stage::Offered), |stage| stage.next()).collect();
        assert_eq!(way.len(), 7);
        assert!(way.is_sorted() && way.last() == Some(&Stage::Active));
    }
}
