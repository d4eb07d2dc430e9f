//! Words of strangers in sentences of ours.

/// What somebody else wrote, on one short line that reads in the order in which it stands.
pub(crate) fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 240;
    let misleads = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if misleads(c) { ' ' } else { c }).take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_somebody_else_wrote_is_one_line_that_reads_as_it_stands() {
        assert_eq!(shown("a\nb\u{202e}c\u{2066}d\u{feff}e\u{2028}f"), "a b c d e f");
        assert_eq!(shown(&"é".repeat(1_000)).chars().count(), 240);
    }
}
