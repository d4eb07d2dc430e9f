//! Path prefixes by whole segments, judged on what a server may make of the path. Must not judge origins.

use percent_encoding::percent_decode_str;

/// A path prefix of the operator, in decoded segments: `/v2/lb` covers `/v2/lb` and `/v2/lb/1`, not `/v2/lbx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPrefix {
    segments: Vec<Vec<u8>>,
}

/// Why a text is not a path prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathPrefixError {
    /// Does not begin with `/`.
    #[error("does not begin with /")]
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
/// Encoded slashes, backslashes, dots of a dot segment and NUL, once or twice encoded; backslashes; `..;`, which some servers cut to
/// `..`; a percent sign that encodes nothing. Plain dot segments are ambiguous here too: a URL has none left after it was parsed.
pub(super) fn is_ambiguous(path: &str) -> bool {
    let mut text = path.as_bytes().to_vec();
    // Decoded up to three times: each round shows what one more careless server would see.
    for _ in 0..3 {
        if text.iter().any(|byte| *byte == b'\\' || *byte == 0) || has_dot_segment(&text) {
            return true;
        }
        let slashes = text.iter().filter(|byte| **byte == b'/').count();
        let Some(next) = decode_once(&text) else { return true };
        if next.iter().filter(|byte| **byte == b'/').count() != slashes {
            return true;
        }
        if next == text {
            return false;
        }
        // From the second round on, a lone percent sign is data of the first one: `%25` is a percent sign.
        text = if decode_once(&next).is_none() { return has_dot_segment(&next) } else { next };
    }
    // Still changing after three rounds: nobody writes that by accident.
    true
}

fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        name == b"." || name == b".."
    })
}

/// Decodes each `%XX`; none where a percent sign is not followed by two hexadecimal digits.
fn decode_once(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        out.push((digit(*high)? << 4) | digit(*low)?);
        rest = tail;
    }
    Some(out)
}
