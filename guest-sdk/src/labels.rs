//! Labels of Kubernetes.

use std::str::FromStr;

/// Longest value of a label, in bytes.
const VALUE_BYTES_MAX: usize = 63;

/// Whether Kubernetes accepts the text as the value of a label: at most 63 letters, digits, `-`,
/// `_` and `.`, beginning and ending with a letter or digit. An empty text is a value.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= VALUE_BYTES_MAX
        && edge(text.chars().next())
        && edge(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// The value of a label in a cloud-config; may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelValue(pub String);

impl FromStr for LabelValue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !is_label_value(text) {
            return Err(
                "cannot be the value of a label; write at most 63 letters, digits and -_. with a letter or digit at both ends",
            );
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::{LabelValue, is_label_value};

    #[test]
    fn the_value_of_a_label_begins_and_ends_with_a_letter_or_digit() {
        for good in ["", "a", "eu-west_1.b", "7", &"x".repeat(63)] {
            assert!(is_label_value(good), "{good:?}");
            assert_eq!(good.parse(), Ok(LabelValue(good.to_owned())));
        }
        for bad in ["-a", "a.", "a b", "a/b", "é", &"x".repeat(64)] {
            assert!(!is_label_value(bad), "{bad:?}");
        }
    }
}
