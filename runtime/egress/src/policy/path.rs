//! Path prefixes by whole segments, judged on what a server may make of the path. Must not judge
//! origins.

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
    #[error("has a query, a fragment or a character that no path has; write only the path")]
    Characters,
    /// See [`is_ambiguous`].
    #[error("can be read in two ways; write it without dot segments, backslashes, encoded slashes and empty segments")]
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

    /// Whether every path is covered, so that no reading of a path can lead out.
    pub(super) fn covers_all(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether `path`, which must not be ambiguous, lies below.
    pub(super) fn covers(&self, path: &str) -> bool {
        decoded(path.strip_prefix('/').unwrap_or(path)).starts_with(&self.segments)
    }
}

fn decoded(path: &str) -> Vec<Vec<u8>> {
    path.split('/').map(|segment| percent_decode_str(segment).collect()).collect()
}

/// Whether two servers may disagree about where a path leads.
///
/// Encoded slashes, backslashes, dots of a dot segment and control characters, once or twice
/// encoded; backslashes; `..;` and `.. `, which some servers cut to `..`; a percent sign that
/// encodes nothing; bytes that are no UTF-8, because lenient decoders read `%c0%ae` as a dot;
/// look-alikes of dots and slashes. Plain dot segments are ambiguous here too: a URL has none left
/// after it was parsed.
pub(super) fn is_ambiguous(path: &str) -> bool {
    let mut text = path.as_bytes().to_vec();
    // Decoded up to three times: each round shows what one more careless server would see.
    for round in 0..3 {
        let Ok(read) = std::str::from_utf8(&text) else { return true };
        if read.contains(|c: char| c == '\\' || c.is_control() || folds_into_a_separator(c)) || has_dot_segment(read) {
            return true;
        }
        let slashes = text.iter().filter(|byte| **byte == b'/').count();
        // In the first round a percent sign that encodes nothing is a fault; later it may be what
        // `%25` stood for.
        let Some(next) = decode_once(&text, round > 0) else { return true };
        if next.iter().filter(|byte| **byte == b'/').count() != slashes {
            return true;
        }
        if next == text {
            return false;
        }
        text = next;
    }
    // Still changing after three rounds: nobody writes that by accident.
    true
}

/// Characters that normalisation (NFKC) or a table of best fits turns into dots and slashes, alone
/// or among others: `…`, `℀`, `∕`, `．`.
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

/// Whether a segment is dots, also with blanks around them or something behind a `;`: some servers
/// cut both off.
fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| {
        let name = segment.split(';').next().unwrap_or_default();
        name.contains('.') && name.chars().all(|c| c == '.' || c.is_whitespace())
    })
}

/// Decodes each `%XX`; a percent sign without two hexadecimal digits stays where `lenient`, else
/// there is no result.
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

/// Of a hexadecimal digit.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}
