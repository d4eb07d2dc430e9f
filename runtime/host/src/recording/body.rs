//! Bytes in a recording: as JSON or text where they are, so that a person can read them.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use skysail_provider::text::is_plain;

/// The bytes of a body or of a value of the cache. A recording has them as `{"json": …}`,
/// `{"text": "…"}` or `{"base64": "…"}`; each gives back the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(pub Bytes);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Written<'a> {
    Json(&'a RawValue),
    Text(&'a str),
    Base64(#[serde(with = "base64")] &'a [u8]),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Read {
    Json(Box<RawValue>),
    Text(String),
    Base64(#[serde(with = "base64")] Vec<u8>),
}

impl Body {
    /// The text; none if the bytes are not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// An object or a list as it stands in the text, spaces included.
fn json(text: &str) -> Option<&RawValue> {
    let is_bare = text.starts_with(['{', '[']) && text.ends_with(['}', ']']);
    // JSON leaves some characters as they are that a terminal obeys; a text escapes all of them.
    let is_shown = text.split('\n').all(is_plain);
    (is_bare && is_shown).then(|| serde_json::from_str(text).ok()).flatten()
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let written = match self.text() {
            None => Written::Base64(&self.0),
            Some(text) => json(text).map_or(Written::Text(text), Written::Json),
        };
        written.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Read::deserialize(from)? {
            Read::Json(raw) => raw.get().to_owned().into(),
            Read::Text(text) => text.into(),
            Read::Base64(bytes) => Self(bytes.into()),
        })
    }
}

/// Bytes as base64.
pub(super) mod base64 {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(in super::super) fn serialize<S: Serializer>(bytes: impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}
