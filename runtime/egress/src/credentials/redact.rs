//! Finds the values of credentials in answers, in the spellings in which servers echo them, and
//! replaces each by `[redacted]`.
//!
//! A guest that can make a server echo a request (a debug endpoint, an error page, a login answer)
//! would otherwise read the credential from the answer. The search finds the value itself and the
//! value of the `Authorization` header; in JSON, percent-encoded, in hexadecimal and in base64
//! (both alphabets) at every alignment inside a longer text. It ignores the case of letters. It
//! searches the text as received, and again after escapes of JSON, HTML and URLs, line breaks and
//! UTF-16 are decoded ([`view`]). The redaction does not protect against a server that cooperates
//! with the guest, for example one that reverses the value: the operator chooses a credential's
//! origins.

use std::{borrow::Cow, collections::BTreeSet, fmt::Write as _};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{Engine as _, engine::general_purpose};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    secret::REDACTED,
    view::{self, pieces},
};

/// A shorter value would match ordinary text, and could be guessed.
pub(crate) const SECRET_BYTES_MIN: usize = 6;

/// Redacts a fixed set of values.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    finder: Option<AhoCorasick>,
}

impl Redactor {
    /// Values shorter than [`SECRET_BYTES_MIN`] are ignored; [`super::Credentials::load`] refuses
    /// them.
    ///
    /// # Errors
    /// The values are too large together for the search automaton. The bounds of
    /// [`super::Credentials`] are far below that.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, aho_corasick::BuildError> {
        let mut patterns = BTreeSet::new();
        for value in values.into_iter().filter(|value| value.len() >= SECRET_BYTES_MIN) {
            spellings(value, &mut patterns);
        }
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        // The longest match wins, so that no rest of a longer spelling remains. Case is ignored:
        // header names arrive in lower case, hexadecimal digits of escapes in either case.
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

    /// `bytes` without the values; `None` if there is no value in them. `bytes` has to be the whole
    /// text, because a part of a value is not found.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Option<Bytes> {
        self.clean(bytes).map(Into::into)
    }

    /// Whether there is any value to search for.
    pub(crate) fn seeks(&self) -> bool {
        self.finder.is_some()
    }

    /// The text without the values; `None` if there is no value in it.
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

/// Redacts values in the decoded text. An encoder chooses which characters it escapes and where it
/// breaks lines, so no list of spellings is complete.
fn clean_as_read(finder: &AhoCorasick, text: &[u8]) -> Option<Vec<u8>> {
    let seen = view::seen(text)?;
    let mut found = finder.find_iter(&seen).map(|found| found.range()).peekable();
    found.peek()?;
    let mut out = Vec::with_capacity(text.len());
    // Where the piece begins in the decoded text.
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
    // Encoders differ: some percent-encode every character but letters and digits, some leave the
    // unreserved characters alone.
    const UNRESERVED: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let percent = utf8_percent_encode(value, UNRESERVED).to_string();
    add(percent.replace("%20", "+"));
    add(percent);
    let mut hex = String::with_capacity(value.len() * 2);
    for byte in value.bytes() {
        // Writing to a String cannot fail.
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

/// The base64 letters that depend on `value` alone when `before` other bytes (mod 3) precede it.
fn base64_inside(value: &str, before: usize) -> String {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value.as_bytes());
    let text = general_purpose::STANDARD_NO_PAD.encode(&bytes);
    // A letter carries six bits; the first and last letters may share bits with neighbouring bytes.
    let first = (before * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    text.get(first..last).unwrap_or_default().to_owned()
}
