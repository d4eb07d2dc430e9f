//! Text from a guest, made fit for one line of a log, an Event or an error.

/// What stands where text was cut.
const CUT: &str = "…";

/// At most `bytes_max` bytes, without control characters; a cut is marked.
pub(crate) fn one_line(text: &str, bytes_max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(bytes_max));
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
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

#[cfg(test)]
mod tests {
    use super::one_line;

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
