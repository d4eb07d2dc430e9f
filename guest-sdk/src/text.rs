//! Texts of a cloud, for messages.

/// The text, cut to this many bytes; the last character is then `…`.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> String {
    match text.get(..text.floor_char_boundary(bytes_max)) {
        Some(begin) if begin.len() < text.len() => format!("{begin}…"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_long_text_ends_between_two_characters() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("Größe", 3), "Gr…");
        assert_eq!(cut("Größe", 4), "Grö…");
    }
}
