//! Names of objects of a cloud.

use std::str::FromStr;

/// A name in the cloud: not empty, without characters that no name has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.contains(['/', '?', '#', '*', ' ']) {
            return Err("is not a name; write a text without blanks and without / ? # *");
        }
        Ok(Self(text.to_owned()))
    }
}
