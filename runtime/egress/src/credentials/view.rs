//! Decodes a text for the search: escapes of JSON, HTML and URLs are decoded; line breaks, and the
//! zero bytes between ASCII characters in UTF-16 and UTF-32, are removed. Must not know what the
//! caller searches for.

/// A piece of a text, and its decoded form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a [u8],
    seen: Seen,
}

#[derive(Clone, Copy, Debug)]
enum Seen {
    /// A line break and the blanks that indent the next line; a zero byte.
    Nothing,
    Byte(u8),
    Char(char),
}

/// The most digits of an HTML character reference, leading zeros included: `&#x0010FFFF;`. Bounds
/// the search for the `;`.
const REFERENCE_DIGITS_MAX: usize = 8;

/// Splits `text` into pieces, in order and without gaps. Each piece takes constant time.
pub(super) fn pieces(text: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (seen, width) = first(rest)?;
        let (text, tail) = rest.split_at_checked(width)?;
        rest = tail;
        Some(Piece { text, seen })
    })
}

/// The decoded text; `None` if the text has nothing to decode. Runs of plain text are copied whole.
pub(super) fn seen(text: &[u8]) -> Option<Vec<u8>> {
    let is_special = |byte: &u8| matches!(byte, 0 | b'\\' | b'&' | b'%' | b'\n' | b'\r');
    let mut seen = Vec::new();
    let mut rest = text;
    while let Some((plain, special)) = rest.iter().position(is_special).and_then(|at| rest.split_at_checked(at)) {
        if seen.is_empty() {
            seen.reserve(text.len());
        }
        seen.extend_from_slice(plain);
        let piece = pieces(special).next()?;
        piece.show(&mut seen);
        rest = special.get(piece.text.len()..)?;
    }
    (rest.len() < text.len()).then(|| {
        seen.extend_from_slice(rest);
        seen
    })
}

impl Piece<'_> {
    /// Appends the decoded form.
    pub(super) fn show(self, out: &mut Vec<u8>) {
        match self.seen {
            Seen::Nothing => {}
            Seen::Byte(byte) => out.push(byte),
            Seen::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    /// The length of the decoded form, in bytes.
    pub(super) const fn seen_len(self) -> usize {
        match self.seen {
            Seen::Nothing => 0,
            Seen::Byte(_) => 1,
            Seen::Char(c) => c.len_utf8(),
        }
    }
}

/// The first piece in decoded form, and how many bytes of the text it takes.
fn first(text: &[u8]) -> Option<(Seen, usize)> {
    let byte = *text.first()?;
    let escape = match byte {
        0 => Some((Seen::Nothing, 1)),
        b'\\' => backslash(text),
        b'&' => reference(text),
        b'%' => text.get(1..3).and_then(number_of_hex).and_then(|n| u8::try_from(n).ok()).map(|n| (Seen::Byte(n), 3)),
        _ => None,
    };
    let (seen, width) = escape.unwrap_or((Seen::Byte(byte), 1));
    match seen {
        Seen::Byte(b'\n' | b'\r') | Seen::Char('\n' | '\r') => {
            let indent = text.iter().skip(width).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            Some((Seen::Nothing, width + indent))
        }
        seen => Some((seen, width)),
    }
}

/// Escapes of JSON and of programming languages: `\u003d`, `\x3d`, `\n`, `\/`.
fn backslash(text: &[u8]) -> Option<(Seen, usize)> {
    let hex = |digits: usize| {
        let c = char::from_u32(number_of_hex(text.get(2..2 + digits)?)?)?;
        Some((Seen::Char(c), 2 + digits))
    };
    match text.get(1)? {
        b'u' | b'U' => hex(4),
        b'x' => hex(2),
        b'n' | b'r' => Some((Seen::Nothing, 2)),
        byte if byte.is_ascii_punctuation() => Some((Seen::Byte(*byte), 2)),
        _ => None,
    }
}

/// Character references of HTML: `&amp;`, `&#43;`, `&#x2F;`.
fn reference(text: &[u8]) -> Option<(Seen, usize)> {
    const NAMED: [(&[u8], u8); 5] =
        [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
    if let Some((name, byte)) = NAMED.into_iter().find(|(name, _)| text.starts_with(name)) {
        return Some((Seen::Byte(byte), name.len()));
    }
    let (digits, before) = match text {
        [b'&', b'#', b'x' | b'X', digits @ ..] => (digits, 3),
        [b'&', b'#', digits @ ..] => (digits, 2),
        _ => return None,
    };
    let len = digits.iter().take(REFERENCE_DIGITS_MAX + 1).position(|byte| *byte == b';')?;
    let digits = digits.get(..len)?;
    let number = if before == 3 { number_of_hex(digits)? } else { std::str::from_utf8(digits).ok()?.parse().ok()? };
    Some((Seen::Char(char::from_u32(number)?), before + len + 1))
}

fn number_of_hex(digits: &[u8]) -> Option<u32> {
    // `from_str_radix` would accept a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::pieces;

    fn seen(text: &str) -> String {
        let mut out = Vec::new();
        pieces(text.as_bytes()).for_each(|piece| piece.show(&mut out));
        let whole = super::seen(text.as_bytes()).unwrap_or_else(|| text.into());
        assert_eq!(whole, out, "`seen` and `pieces` decode alike");
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn escapes_are_read_and_line_breaks_are_left_out() {
        for (text, expected) in [
            (r"a\u003db\u003D\u00e9\x3d", "a=b=é="),
            (r#"\/\"\\\'"#, r#"/"\'"#),
            ("&amp;&lt;&gt;&quot;&apos;&#43;&#x2F;&#X2f;&#0043;", "&<>\"'+//+"),
            ("a%3d%3D%C3%A9", "a==é"),
            ("ab\r\n  cd\\nef\\u000agh%0d%0Aij&#10;kl", "abcdefghijkl"),
        ] {
            assert_eq!(seen(text), expected);
        }
    }

    #[test]
    fn text_that_is_no_escape_sequence_stays_unchanged() {
        for text in [
            r"\", r"\u", r"\u12", r"\ud800", r"\x", r"\x4", r"\t", "%", "%4", "%g0", "&", "&#;", "&#x;", "&#xg;",
            "&#43",
        ] {
            assert_eq!(seen(text), text);
        }
        assert_eq!(seen("&#000000000043;"), "&#000000000043;");
    }

    #[test]
    fn pieces_are_the_text() {
        let text = "a\\u003d&#43;%41\r\n\tb\\n&amp;é";
        assert_eq!(pieces(text.as_bytes()).flat_map(|piece| piece.text.to_vec()).collect::<Vec<_>>(), text.as_bytes());
        let seen: usize = pieces(text.as_bytes()).map(|piece| piece.seen_len()).sum();
        assert_eq!(seen, self::seen(text).len());
    }
}
