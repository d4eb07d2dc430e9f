//! The system UUID of a node, in little memory.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `status.nodeInfo.systemUUID`: usually a UUID, which takes no allocation. A cluster has thousands
/// of nodes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SystemUuid(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Uuid([u8; 16]),
    /// A kubelet without a UUID takes the machine ID.
    Text(Box<str>),
}

/// Lengths of the parts of a UUID, which dashes separate.
const PARTS: [usize; 5] = [8, 4, 4, 4, 12];

impl From<&str> for SystemUuid {
    fn from(text: &str) -> Self {
        let has_parts = text.split('-').map(str::len).eq(PARTS);
        let digits = text.replace('-', "");
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(&digits, 16) {
            Ok(number) if has_parts && is_hex => Self(Form::Uuid(number.to_be_bytes())),
            Ok(_) | Err(_) => Self(Form::Text(text.into())),
        }
    }
}

/// A UUID in lower case, any other text as it is.
impl fmt::Display for SystemUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match &self.0 {
            Form::Uuid(bytes) => u128::from_be_bytes(*bytes),
            Form::Text(text) => return f.write_str(text),
        };
        let (low, mid, high) = (number >> 96, (number >> 80) & 0xffff, (number >> 64) & 0xffff);
        write!(f, "{low:08x}-{mid:04x}-{high:04x}-{:04x}-{:012x}", (number >> 48) & 0xffff, number & 0xffff_ffff_ffff)
    }
}

impl Serialize for SystemUuid {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SystemUuid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*String::deserialize(from)?))
    }
}

impl fmt::Debug for SystemUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::SystemUuid;

    #[test]
    fn a_uuid_comes_back_in_lower_case_and_any_other_text_as_it_was() {
        let uuid = "00a1b2c3-0405-4607-8899-0a0b0c0d0e0f";
        for (text, shown) in [
            (uuid, uuid),
            (&*uuid.to_uppercase(), uuid),
            ("4c4c4544005831108053b8c04f465931", "4c4c4544005831108053b8c04f465931"),
            ("00a1b2c3-0405-4607-8899-0a0b0c0d0e0", "00a1b2c3-0405-4607-8899-0a0b0c0d0e0"),
            ("+0a1b2c3-0405-4607-8899-0a0b0c0d0e0f", "+0a1b2c3-0405-4607-8899-0a0b0c0d0e0f"),
            ("Not Specified", "Not Specified"),
        ] {
            assert_eq!(SystemUuid::from(text).to_string(), shown);
        }
        assert!(size_of::<Option<SystemUuid>>() <= 24);
    }
}
