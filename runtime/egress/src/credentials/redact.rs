//! Finds the values of credentials in what comes back, in the spellings in which servers echo them,
//! and puts `[redacted]` there.
//!
//! A guest that can make a server echo a request (a debug endpoint, an error page, a login answer)
//! would otherwise read the credential from the answer. Sought are the value itself and what
//! `Authorization` carries; as JSON and percent-encoded text; in hexadecimal; and in base64 (both
//! alphabets) wherever it begins inside a longer text, because the alignment changes the letters.
//! The search ignores the case of letters. It looks at the text as it is, and once more as a reader
//! of JSON, HTML, URLs, broken lines or UTF-16 sees it ([`view`]). This stops echoes, not a server
//! that helps the guest (one that answers with the value reversed): the origins of a credential are
//! the operator's choice.

use std::{borrow::Cow, collections::BTreeSet, fmt::Write as _};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{Engine as _, engine::general_purpose};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    secret::REDACTED,
    view::{self, pieces},
};

/// Below this a value would be found in ordinary text, and could be guessed anyway.
pub(crate) const SECRET_BYTES_MIN: usize = 6;

/// Redacts a fixed set of values.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    finder: Option<AhoCorasick>,
}

impl Redactor {
    /// None of `values` is shorter than [`SECRET_BYTES_MIN`]: shorter ones would be ignored.
    ///
    /// # Errors
    /// The values are too large together for a finder; what loads credentials bounds them far
    /// below.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, aho_corasick::BuildError> {
        let mut patterns = BTreeSet::new();
        for value in values.into_iter().filter(|value| value.len() >= SECRET_BYTES_MIN) {
            spellings(value, &mut patterns);
        }
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        // The longest at each place, so that no tail of a longer spelling is left over. In either
        // case: names of headers arrive in lower case, and digits of escapes in both.
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .build(patterns)?;
        Ok(Self { finder: Some(finder) })
    }

    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.clean(text.as_bytes()) {
            Some(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
            None => Cow::Borrowed(text),
        }
    }

    /// Whether a value is in the text.
    pub(crate) fn finds(&self, text: &str) -> bool {
        self.clean(text.as_bytes()).is_some()
    }

    /// `bytes` without the values, where there is one in them. They must be whole: half a value is
    /// not found.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Option<Bytes> {
        self.clean(bytes).map(Into::into)
    }

    /// Whether there is a value to seek at all.
    pub(crate) fn seeks(&self) -> bool {
        self.finder.is_some()
    }

    /// The text without the values, where there is one in it.
    fn clean(&self, text: &[u8]) -> Option<Vec<u8>> {
        let finder = self.finder.as_ref()?;
        let as_written = finder.is_match(text).then(|| {
            let mut out = Vec::with_capacity(text.len());
            finder.replace_all_with_bytes(text, &mut out, |_, _, out| {
                out.extend_from_slice(REDACTED.as_bytes());
                true
            });
            out
        });
        let as_read = clean_as_read(finder, as_written.as_deref().unwrap_or(text));
        as_read.or(as_written)
    }
}

/// Looks where a reader would: an encoder chooses which characters it escapes and where it breaks
/// lines, so no list has all spellings.
fn clean_as_read(finder: &AhoCorasick, text: &[u8]) -> Option<Vec<u8>> {
    let seen = view::seen(text)?;
    let mut found = finder.find_iter(&seen).map(|found| found.range()).peekable();
    found.peek()?;
    let mut out = Vec::with_capacity(text.len());
    // Where the piece begins in what is seen.
    let mut at = 0;
    for piece in pieces(text) {
        let end = at + piece.seen_len();
        while found.next_if(|value| value.end <= at).is_some() {}
        match found.peek() {
            Some(value) if value.start < end => {
                if at <= value.start {
                    out.extend_from_slice(REDACTED.as_bytes());
                }
            }
            _ => out.extend_from_slice(piece.text),
        }
        at = end;
    }
    Some(out)
}

fn spellings(value: &str, out: &mut BTreeSet<Vec<u8>>) {
    let mut add = |text: String| {
        if text.len() >= SECRET_BYTES_MIN {
            out.insert(text.into_bytes());
        }
    };
    add(value.to_owned());
    let json = serde_json::Value::from(value).to_string();
    let json = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&json).to_owned();
    // Some encoders escape the slash, and some angle brackets and ampersands.
    add(json.replace('/', "\\/"));
    add(json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"));
    add(json);
    add(value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"));
    let percent = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    add(percent);
    // Encoders differ in which characters they leave alone: once all but the unreserved ones, once
    // only what must be.
    const UNRESERVED: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let percent = utf8_percent_encode(value, UNRESERVED).to_string();
    add(percent.replace("%20", "+"));
    add(percent);
    let mut hex = String::with_capacity(value.len() * 2);
    for byte in value.bytes() {
        // Writing to a String cannot fail; a lost pair would only leave one spelling unsought.
        if write!(hex, "{byte:02x}").is_err() {
            break;
        }
    }
    add(hex);
    for before in 0..3 {
        let text = base64_inside(value, before);
        add(text.replace('+', "-").replace('/', "_"));
        add(text);
    }
}

/// The base64 letters that depend on `value` alone when `before` bytes (mod 3) of something else
/// stand before it.
fn base64_inside(value: &str, before: usize) -> String {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value.as_bytes());
    let text = general_purpose::STANDARD_NO_PAD.encode(&bytes);
    // A letter carries six bits: those that share bits with a neighbour are not the value's own.
    let first = (before * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    text.get(first..last).unwrap_or_default().to_owned()
}
