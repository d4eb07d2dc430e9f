//! Path prefixes by whole segments, with all the ways in which a server may decode a path. Must not
//! check origins.

use percent_encoding::percent_decode_str;

/// A path prefix of the operator, in decoded segments: `/v2/lb` covers `/v2/lb` and `/v2/lb/1`, not
/// `/v2/lbx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPrefix {
    segments: Vec<Vec<u8>>,
}

/// Why a text is not a path prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathPrefixError {
    /// Does not begin with `/`.
    #[error("does not begin with /; write it from the root, as in /v1")]
    Relative,
    /// Query, fragment, space or control character.
    #[error("has a query, a fragment, a space or a control character; write only the path")]
    Characters,
    /// See [`is_ambiguous`].
    #[error("is ambiguous; write it without dot segments, backslashes, encoded slashes and empty segments")]
    Ambiguous,
}

impl PathPrefix {
    pub(super) fn parse(text: &str) -> Result<Self, PathPrefixError> {
        let Some(rest) = text.strip_prefix('/') else { return Err(PathPrefixError::Relative) };
        if text.bytes().any(|byte| byte.is_ascii_control() || matches!(byte, b' ' | b'?' | b'#')) {
            return Err(PathPrefixError::Characters);
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if is_ambiguous(text) || (!rest.is_empty() && rest.split('/').any(str::is_empty)) {
            return Err(PathPrefixError::Ambiguous);
        }
        Ok(Self { segments: if rest.is_empty() { Vec::new() } else { decoded(rest) } })
    }

    /// Whether the prefix covers every path, the ambiguous ones included.
    pub(super) fn covers_all(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether `path`, which must not be ambiguous, lies below the prefix.
    pub(super) fn covers(&self, path: &str) -> bool {
        decoded(path.strip_prefix('/').unwrap_or(path)).starts_with(&self.segments)
    }
}

fn decoded(path: &str) -> Vec<Vec<u8>> {
    path.split('/').map(|segment| percent_decode_str(segment).collect()).collect()
}

/// Whether two servers may disagree about where a path leads.
///
/// An ambiguous path contains one of these: slashes, backslashes, dots of a dot segment and control
/// characters that are encoded once or twice; backslashes; `..;` and `.. `, which some servers cut
/// to `..`; a percent sign that encodes nothing; bytes that are not UTF-8, because lenient decoders
/// read `%c0%ae` as a dot; characters that look like dots and slashes; plain dot segments, of which
/// a parsed URL has none left.
pub(super) fn is_ambiguous(path: &str) -> bool {
    let mut text = path.as_bytes().to_vec();
    // Decoded up to three times, because a proxy and the servers behind it may each decode once.
    for round in 0..3 {
        let Ok(read) = std::str::from_utf8(&text) else { return true };
        if read.contains(|c: char| c == '\\' || c.is_control() || folds_into_a_separator(c)) || has_dot_segment(read) {
            return true;
        }
        let slashes = text.iter().filter(|byte| **byte == b'/').count();
        // In the first round a percent sign that encodes nothing is an error; in later rounds it
        // may be a decoded `%25`.
        let Some(next) = decode_once(&text, round > 0) else { return true };
        if next.iter().filter(|byte| **byte == b'/').count() != slashes {
            return true;
        }
        if next == text {
            return false;
        }
        text = next;
    }
    // A path that still changes after three rounds is taken for an attack.
    true
}

/// Characters that Unicode normalisation (NFKC) or a best-fit mapping to ASCII turns into dots and
/// slashes, alone or among others: `…`, `℀`, `∕`, `．`.
const fn folds_into_a_separator(c: char) -> bool {
    matches!(
        c,
        '\u{2024}'
            ..='\u{2026}'
                | '\u{2044}'
                | '\u{2100}'
                | '\u{2101}'
                | '\u{2105}'
                | '\u{2106}'
                | '\u{2215}'
                | '\u{2216}'
                | '\u{fe19}'
                | '\u{fe52}'
                | '\u{fe68}'
                | '\u{ff0e}'
                | '\u{ff0f}'
                | '\u{ff3c}'
    )
}

/// Whether a segment consists of dots, also with white space around them or parameters after a `;`:
/// some servers remove both.
fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| {
        let name = segment.split(';').next().unwrap_or_default();
        name.contains('.') && name.chars().all(|c| c == '.' || c.is_whitespace())
    })
}

/// Decodes each `%XX`. A percent sign without two hexadecimal digits is kept if `lenient`;
/// otherwise the result is `None`.
fn decode_once(text: &[u8], lenient: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, rest) {
            (b'%', [high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push((digit(*high) << 4) | digit(*low));
                rest = tail;
            }
            (b'%', _) if !lenient => return None,
            (byte, _) => out.push(*byte),
        }
    }
    Some(out)
}

/// The value of a hexadecimal digit.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}
