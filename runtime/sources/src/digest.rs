//! The digest that identifies a component's content.

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

/// SHA-256 of a component's bytes; printed as `sha256:<64 hex digits>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hex digits alone.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The raw 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A text is not a SHA-256 digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest; write sha256: and 64 hex digits")]
pub struct DigestError(String);

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        /// Characters of the text that the message shows.
        const SHOWN_MAX: usize = 80;
        let parse = || {
            let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.is_ascii())?;
            let mut bytes = [0; 32];
            for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
                let digits = std::str::from_utf8(digits)
                    .ok()
                    .filter(|digits| !digits.contains(['+', 'A', 'B', 'C', 'D', 'E', 'F']))?;
                *byte = u8::from_str_radix(digits, 16).ok()?;
            }
            Some(Self(bytes))
        };
        parse().ok_or_else(|| DigestError(text.chars().take(SHOWN_MAX).collect()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn a_digest_prints_as_registries_print_it() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
    }

    #[test]
    fn an_invalid_digest_is_refused() {
        let good = Digest::of(b"").to_string();
        let wrong = [
            "".to_owned(),
            good.replace("sha256:", ""),
            good.replace("sha256", "sha512"),
            good.to_uppercase(),
            good.replace("e3", "E3"),
            good.replace("e3", "+3"),
            format!("{good}0"),
            good.replace("e3b0", "é3b"),
        ];
        for text in wrong {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
