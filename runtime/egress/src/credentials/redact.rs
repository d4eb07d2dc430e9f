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

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::{self, Write as _},
    ops::Range,
    sync::Arc,
};

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, MatchKind, packed};
use base64::{Engine as _, engine::general_purpose};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    secret::REDACTED,
    view::{self, pieces},
};

/// A shorter value would match ordinary text, and could be guessed.
pub(crate) const SECRET_BYTES_MIN: usize = 6;

/// The most bytes of spellings that are searched by the fastest automaton, which takes up to 1 KiB
/// of memory for each byte. A token of 2 KiB has 16 KiB of spellings.
const DFA_BYTES_MAX: usize = 24 << 10;

/// The most spellings that a filter searches for; more of them make it slow.
const FILTER_SPELLINGS_MAX: usize = 32;
/// The most filters of one set of values: each reads the whole text.
const FILTERS_MAX: usize = 4;

/// Redacts sets of values.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    finders: Vec<Arc<Finder>>,
}

/// Finds the spellings of a set of values.
struct Finder {
    /// Whether a text in lower case has any spelling, at a sixth to a twelfth of the automaton's
    /// cost: almost no text has one. None where there are too many spellings, or no vector
    /// instructions.
    filters: Option<Vec<packed::Searcher>>,
    /// Where the spellings are.
    automaton: AhoCorasick,
}

impl Finder {
    fn new(spellings: BTreeSet<Vec<u8>>, fast_bytes_max: usize) -> Result<Self, BuildError> {
        let lower: Vec<_> = spellings.iter().map(|spelling| spelling.to_ascii_lowercase()).collect();
        let filters = lower.chunks(FILTER_SPELLINGS_MAX).map(packed::Searcher::new).take(FILTERS_MAX + 1);
        let filters = filters.collect::<Option<Vec<_>>>().filter(|filters| filters.len() <= FILTERS_MAX);
        // The longest match wins, so that no rest of a longer spelling remains. Case is ignored:
        // header names arrive in lower case, hexadecimal digits of escapes in either case.
        let bytes: usize = spellings.iter().map(Vec::len).sum();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .kind((bytes > fast_bytes_max).then_some(AhoCorasickKind::ContiguousNFA))
            .build(spellings)?;
        Ok(Self { filters, automaton })
    }

    /// Whether the text may have a spelling: certainly not if the result is false.
    fn may_find(&self, lower: &[u8]) -> bool {
        self.filters.as_ref().is_none_or(|filters| filters.iter().any(|filter| filter.find(lower).is_some()))
    }
}

impl Redactor {
    /// Values shorter than [`SECRET_BYTES_MIN`] are ignored; [`super::Credentials::load`] refuses
    /// them.
    ///
    /// # Errors
    /// The values are too large together for the search automaton. The bounds of
    /// [`super::Credentials`] are far below that.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, BuildError> {
        Self::build(values, DFA_BYTES_MAX)
    }

    /// As [`Self::new`], with little memory: for values of which there may be many.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn small<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, BuildError> {
        Self::build(values, 0)
    }

    fn build<'a>(values: impl IntoIterator<Item = &'a str>, fast_bytes_max: usize) -> Result<Self, BuildError> {
        let mut patterns = BTreeSet::new();
        for value in values.into_iter().filter(|value| value.len() >= SECRET_BYTES_MIN) {
            spellings(value, &mut patterns);
        }
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self { finders: vec![Arc::new(Finder::new(patterns, fast_bytes_max)?)] })
    }

    /// Redacts the values of both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self { finders: self.finders.iter().chain(&other.finders).cloned().collect() }
    }

    /// The places of values, without overlaps and in order.
    fn places(&self, text: &[u8]) -> Vec<Range<usize>> {
        let lower = text.to_ascii_lowercase();
        let finders = self.finders.iter().filter(|finder| finder.may_find(&lower));
        let mut found: Vec<_> =
            finders.flat_map(|finder| finder.automaton.find_iter(text).map(|found| found.range())).collect();
        if self.finders.len() > 1 {
            join_overlaps(&mut found);
        }
        found
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

    /// How many times a text is searched.
    pub(crate) fn searches(&self) -> u64 {
        self.finders.len() as u64
    }

    /// Whether there is any value to search for.
    pub(crate) fn seeks(&self) -> bool {
        !self.finders.is_empty()
    }

    /// The text without the values; `None` if there is no value in it.
    fn clean(&self, text: &[u8]) -> Option<Vec<u8>> {
        if !self.seeks() {
            return None;
        }
        // Both in the text as received: a place that is cut out of a text could hide the rest of
        // another value.
        let mut places = self.places(text);
        places.extend(self.places_as_read(text));
        join_overlaps(&mut places);
        if places.is_empty() {
            return None;
        }
        let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
        for place in places {
            out.extend_from_slice(text.get(at..place.start).unwrap_or_default());
            out.extend_from_slice(REDACTED.as_bytes());
            at = place.end;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        Some(out)
    }

    /// The places of values that the decoded text has. An encoder chooses which characters it
    /// escapes and where it breaks lines, so no list of spellings is complete.
    fn places_as_read(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        let Some(seen) = view::seen(text) else { return places };
        let mut found = self.places(&seen).into_iter().peekable();
        if found.peek().is_none() {
            return places;
        }
        // Where the piece begins in the decoded text and in the text, and where a value began.
        let (mut at, mut raw, mut begin) = (0, 0, None);
        for piece in pieces(text) {
            let end = at + piece.seen_len();
            while found.next_if(|value| value.end <= at).is_some() {
                places.extend(begin.take().map(|begin| begin..raw));
            }
            if found.peek().is_some_and(|value| value.start < end) {
                begin.get_or_insert(raw);
            }
            (at, raw) = (end, raw + piece.text.len());
        }
        places.extend(begin.map(|begin| begin..raw));
        places
    }
}

/// Sorts the places and joins those that overlap.
fn join_overlaps(places: &mut Vec<Range<usize>>) {
    places.sort_by_key(|place| place.start);
    places.dedup_by(|next, last| {
        let overlaps = next.start < last.end;
        last.end = if overlaps { last.end.max(next.end) } else { last.end };
        overlaps
    });
}

impl fmt::Debug for Redactor {
    /// Leaves out the automaton, whose states spell the values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("seeks", &self.seeks()).finish_non_exhaustive()
    }
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
