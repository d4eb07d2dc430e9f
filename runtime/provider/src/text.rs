//! Sanitises untrusted text (from a guest, a cloud, a registry, a file name) for one line of a log,
//! an Event, an error or a terminal, and writes errors on one line.

use std::{error::Error, iter::successors};

/// Marks the place where text was truncated.
const CUT: &str = "…";

/// The text with at most `bytes_max` bytes, without control and [invisible](is_invisible)
/// characters; a truncation is marked.
///
/// For a path pass its [lossy text](std::path::Path::to_string_lossy).
#[must_use]
pub fn one_line(text: &str, bytes_max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes_max));
    for c in text.chars().filter(|c| !is_invisible(*c)) {
        let c = if is_control(c) { ' ' } else { c };
        if out.len() + c.len_utf8() > bytes_max {
            while out.len() + CUT.len() > bytes_max && out.pop().is_some() {}
            if bytes_max >= CUT.len() {
                out.push_str(CUT);
            }
            return out;
        }
        out.push(c);
    }
    out
}

/// Whether [`one_line`] leaves all characters of the text as they are. For text that must not be
/// changed, such as an ID.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| is_control(c) || is_invisible(c))
}

/// Moves the cursor, or begins a line.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether a character is invisible and changes how other characters are displayed or compared:
/// bidirectional controls, which can reorder the text of a line, zero-width spaces and joiners,
/// tags.
#[must_use]
pub const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The most causes of an error that are written: no known error has more, and an error of another
/// crate could be its own cause.
const CAUSES_MAX: usize = 16;

/// The error and its causes, in one text. Many errors repeat their cause in their own text; a cause
/// that the text before it contains is left out.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut last = error.to_string();
    let mut text = last.clone();
    for cause in successors(error.source(), |&cause| cause.source()).take(CAUSES_MAX) {
        let said = cause.to_string();
        if !last.contains(&said) {
            text = text + ": " + &said;
            last = said;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fmt};

    use super::{CAUSES_MAX, is_plain, one_line, with_causes};

    #[derive(Debug)]
    struct Because(&'static str, Option<Box<Because>>);

    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Because {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn each_cause_of_an_error_is_named_once() {
        let because = |text, cause: Option<Because>| Because(text, cause.map(Box::new));
        let closed = because("closed", None);
        let error = because("cannot read", Some(because("cannot connect: closed", Some(closed))));
        assert_eq!(with_causes(&error), "cannot read: cannot connect: closed");
        let many = (0..CAUSES_MAX * 2)
            .fold(because("0", None), |cause, n| because(if n % 2 == 0 { "1" } else { "0" }, Some(cause)));
        assert_eq!(with_causes(&many).len(), 1 + 3 * CAUSES_MAX, "the number of causes is bounded");
    }

    #[test]
    fn invisible_and_bidirectional_characters_are_removed() {
        assert_eq!(one_line("a\u{202e}b\u{2066}c\u{2069}d\u{200f}e\u{feff}f\u{200b}g\u{e0041}h", 100), "abcdefgh");
        assert_eq!(one_line("one\u{2028}line\u{2029}only", 100), "one line only");
        assert!(is_plain("äöü 1"));
        for text in ["a\u{202e}b", "a\u{2028}b", "a\nb", "a\u{200b}b", "\u{1b}[31m"] {
            assert!(!is_plain(text), "{text:?}");
        }
    }

    #[test]
    fn text_is_one_bounded_line() {
        assert_eq!(one_line("a\nb\u{1b}[31m", 100), "a b [31m");
        assert_eq!(one_line("short", 5), "short");
        assert_eq!(one_line("longer", 5), "lo…");
        for max in 0..12 {
            assert!(one_line("éééééé", max).len() <= max);
        }
    }
}
