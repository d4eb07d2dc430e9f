//! Sanitises untrusted text (from a guest, a cloud, a registry, a file name) for one line of a log,
//! an Event, an error or a terminal.

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
        let c = if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c };
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

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn invisible_and_bidirectional_characters_are_removed() {
        assert_eq!(one_line("a\u{202e}b\u{2066}c\u{2069}d\u{200f}e\u{feff}f\u{200b}g\u{e0041}h", 100), "abcdefgh");
        assert_eq!(one_line("one\u{2028}line\u{2029}only", 100), "one line only");
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
