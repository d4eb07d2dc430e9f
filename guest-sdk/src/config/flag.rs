//! Booleans.

use std::str::FromStr;

/// A Boolean in the words of `gcfg`, by which vendors' managers read their INI files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag(pub bool);

impl FromStr for Flag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(Self(true)),
            "false" | "no" | "off" | "0" => Ok(Self(false)),
            _ => Err("is not a Boolean; write true or false"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Flag;

    #[test]
    fn a_boolean_has_eight_words_in_upper_and_lower_case() {
        for (word, flag) in [("true", true), ("Yes", true), ("ON", true), ("1", true), ("false", false), ("no", false)]
        {
            assert_eq!(word.parse(), Ok(Flag(flag)), "{word}");
        }
        assert_eq!(("off".parse(), "0".parse()), (Ok(Flag(false)), Ok(Flag(false))));
        assert!("".parse::<Flag>().is_err() && "t".parse::<Flag>().is_err());
    }
}
