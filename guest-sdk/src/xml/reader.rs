//! XML read once from its beginning to its end, without a tree: for answers of megabytes.
//!
//! ```
//! use skysail_guest_sdk::xml::reader::Reader;
//!
//! let text = b"<r xmlns='urn:x'><set><item><id>i-1</id><size>9</size></item></set></r>";
//! let mut reader = Reader::new(text).unwrap();
//! let mut ids = Vec::new();
//! reader.enter(&["r", "set"]).unwrap();
//! while let Some(_item) = reader.child().unwrap() {
//!     while let Some(field) = reader.child().unwrap() {
//!         match field.name {
//!             "id" => ids.push(reader.text().unwrap().into_owned()),
//!             _ => reader.skip().unwrap(),
//!         }
//!     }
//! }
//! assert_eq!(ids, ["i-1"]);
//! ```
//!
//! Each element that [`Reader::child`] returns is read by exactly one of [`Reader::text`],
//! [`Reader::skip`], [`Reader::each`] and a loop of [`Reader::child`] until none. A tree of the
//! same document takes several times the memory.
//!
//! The functions are `#[inline]`, so that they have the `opt-level` of the guest that reads.

use std::borrow::Cow;

use crate::{Error, Result};

/// The maximum depth of a document: answers of clouds have less than twenty levels.
const DEPTH_MAX: usize = 64;

/// A document, and the place up to which it was read.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The names, with prefixes, of the elements whose end was not read yet.
    open: Vec<&'a str>,
    /// Whether the innermost element was of the form `<a/>`: it has no end of its own.
    empty: bool,
}

/// The start of an element.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The name without its namespace.
    pub name: &'a str,
    attributes: &'a str,
}

/// What comes next in a document, besides text.
pub(super) enum Tag<'a> {
    Start(Start<'a>),
    End,
}

impl<'a> Reader<'a> {
    /// Begins to read a document.
    ///
    /// # Errors
    ///
    /// `internal` for bytes that are not UTF-8.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { text, at: 0, open: Vec::new(), empty: false })
    }

    /// The next child element of the innermost element that is not read to its end, or the root;
    /// none at the end of the element, which is then read.
    ///
    /// # Errors
    ///
    /// `internal` for a text that is not XML, has a document type definition or is too deep.
    #[inline]
    pub fn child(&mut self) -> Result<Option<Start<'a>>> {
        match self.tag(None)? {
            Tag::Start(start) => Ok(Some(start)),
            Tag::End => Ok(None),
        }
    }

    /// The text of the element, without blanks at its ends, and without that of its children.
    ///
    /// # Errors
    ///
    /// As [`Reader::child`].
    #[inline]
    pub fn text(&mut self) -> Result<Cow<'a, str>> {
        let mut text = Cow::Borrowed("");
        while let Tag::Start(_) = self.tag(Some(&mut text))? {
            self.skip()?;
        }
        Ok(match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii()),
            Cow::Owned(text) => Cow::Owned(text.trim_ascii().to_owned()),
        })
    }

    /// Reads to the end of the element and drops its content.
    ///
    /// # Errors
    ///
    /// As [`Reader::child`].
    #[inline]
    pub fn skip(&mut self) -> Result<()> {
        let outside = self.open.len().saturating_sub(1);
        while self.open.len() > outside {
            self.tag(None)?;
        }
        Ok(())
    }

    /// Goes down to the first element at the end of a path of names, each a child of the one
    /// before it. False if there is none; then the document is read up to where the path ends.
    ///
    /// # Errors
    ///
    /// As [`Reader::child`].
    #[inline]
    pub fn enter(&mut self, path: &[&str]) -> Result<bool> {
        for name in path {
            loop {
                match self.child()? {
                    None => return Ok(false),
                    Some(start) if start.name == *name => break,
                    Some(_) => self.skip()?,
                }
            }
        }
        Ok(true)
    }

    /// Calls `read` for each element at the end of a path of names below the innermost element,
    /// with the element's start read, and skips all others. Reads the innermost element to its end.
    ///
    /// # Errors
    ///
    /// As [`Reader::child`], and those of `read`.
    #[inline]
    pub fn each(&mut self, path: &[&str], read: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let Some((name, below)) = path.split_first() else { return read(self) };
        while let Some(start) = self.child()? {
            if start.name == *name {
                self.each(below, read)?;
            } else {
                self.skip()?;
            }
        }
        Ok(())
    }

    /// Reads up to the end of the next tag, and appends the text before it.
    #[inline]
    pub(super) fn tag(&mut self, mut text: Option<&mut Cow<'a, str>>) -> Result<Tag<'a>> {
        if std::mem::take(&mut self.empty) {
            self.open.pop();
            return Ok(Tag::End);
        }
        loop {
            let rest = self.bytes();
            // Most tags follow another one.
            let next = if rest.first() == Some(&b'<') { Some(0) } else { find(rest, b'<') };
            let Some(tag) = next else {
                let end = self.open.is_empty() && self.at > 0 && rest.trim_ascii().is_empty();
                return if end { Ok(Tag::End) } else { Err(wrong("the text ends too early")) };
            };
            if let (1.., Some(text)) = (tag, &mut text) {
                append(text, unescaped(self.part(0, tag))?);
            }
            self.at += tag + 1;
            match rest.get(tag + 1) {
                Some(b'/') => return self.end(),
                Some(b'!' | b'?') => {
                    if let (Some(data), Some(text)) = (self.special()?, &mut text) {
                        append(text, Cow::Borrowed(data));
                    }
                }
                _ => return self.start(),
            }
        }
    }

    /// Reads `name attributes>` or `name attributes/>`.
    #[inline]
    fn start(&mut self) -> Result<Tag<'a>> {
        let rest = self.bytes();
        let (mut name_end, mut local) = (rest.len(), 0);
        for (at, byte) in rest.iter().enumerate() {
            match byte {
                // Letters first: nearly all bytes of a name.
                b'A'.. => {}
                b'>' | b'/' | b' ' | b'\t' | b'\r' | b'\n' => {
                    name_end = at;
                    break;
                }
                b':' => local = at + 1,
                _ => {}
            }
        }
        let has_attributes = rest.get(name_end) != Some(&b'>');
        let end = if has_attributes { rest.get(name_end..).and_then(end_of_tag) } else { Some(0) };
        let end = end.ok_or_else(|| wrong("a tag has no end"))?;
        if name_end == 0 || self.open.len() >= DEPTH_MAX {
            return Err(wrong("an element has no name, or is too deep"));
        }
        let whole = self.part(0, name_end);
        let name = if local == 0 { whole } else { self.part(local, name_end) };
        let attributes = if has_attributes { self.part(name_end, name_end + end) } else { "" };
        self.open.push(whole);
        self.empty = attributes.ends_with('/');
        self.at += name_end + end + 1;
        Ok(Tag::Start(Start { name, attributes }))
    }

    /// Reads `/name>`.
    #[inline]
    fn end(&mut self) -> Result<Tag<'a>> {
        let name = self.bytes().get(1..).unwrap_or_default();
        let open = self.open.pop().unwrap_or_default().as_bytes();
        let behind = name.strip_prefix(open).filter(|_| !open.is_empty()).unwrap_or_default();
        let blanks = behind.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if behind.get(blanks) != Some(&b'>') {
            return Err(wrong("an end tag does not belong to the innermost element"));
        }
        self.at += open.len() + blanks + 2;
        Ok(Tag::End)
    }

    /// Reads the rest of a comment, an instruction or a CDATA section, and returns the text of the
    /// last.
    fn special(&mut self) -> Result<Option<&'a str>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (start, end) = [("![CDATA[", "]]>"), ("!--", "-->"), ("?", "?>")]
            .into_iter()
            .find(|(start, _)| rest.starts_with(start))
            .ok_or_else(|| wrong("a document type definition is not allowed"))?;
        let inside = rest.get(start.len()..).and_then(|inside| inside.split_once(end)).map(|(inside, _)| inside);
        let inside = inside.ok_or_else(|| wrong("a comment, an instruction or a CDATA section has no end"))?;
        self.at += start.len() + inside.len() + end.len();
        Ok((start == "![CDATA[").then_some(inside))
    }

    /// What is not read yet.
    #[inline]
    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// A part of what is not read yet, between two positions where a character of ASCII is.
    #[inline]
    fn part(&self, from: usize, to: usize) -> &'a str {
        self.text.get(self.at + from..self.at + to).unwrap_or_default()
    }
}

impl<'a> Start<'a> {
    pub(super) const NONE: Self = Self { name: "", attributes: "" };

    /// The value of an attribute by its whole name; `type` and `xsi:type` are two attributes.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        self.attributes().find(|(key, _)| *key == name).and_then(|(_, value)| unescaped(value).ok())
    }

    /// The value of an attribute by its name behind a prefix, whatever prefix it is: `xsi:type`.
    #[must_use]
    pub fn prefixed_attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        let found = self.attributes().find(|(key, _)| key.split_once(':').is_some_and(|(_, key)| key == name));
        found.and_then(|(_, value)| unescaped(value).ok())
    }

    #[inline]
    fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut rest = self.attributes;
        std::iter::from_fn(move || {
            let (name, behind) = rest.split_once('=')?;
            let behind = behind.trim_start();
            let quote = behind.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            let (value, behind) = behind.get(1..)?.split_once(quote)?;
            rest = behind;
            Some((name.trim(), value))
        })
    }
}

/// Appends a piece; the first one is not copied.
#[inline]
pub(super) fn append<'a>(text: &mut Cow<'a, str>, piece: Cow<'a, str>) {
    if text.is_empty() {
        *text = piece;
    } else {
        text.to_mut().push_str(&piece);
    }
}

/// The position of the `>` that ends a tag: one outside of quotes.
#[inline]
fn end_of_tag(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let found = find_any(rest, [b'>', b'"', b'\''])?;
        let behind = at + found + 1;
        match rest.get(found) {
            Some(b'>') => return Some(at + found),
            quote => at = behind + find(bytes.get(behind..)?, *quote?)? + 1,
        }
    }
}

/// The position of the first such byte.
#[inline]
fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    find_any(bytes, [byte])
}

/// The position of the first byte that is one of these, eight bytes at a time.
fn find_any<const N: usize>(bytes: &[u8], wanted: [u8; N]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, tail) = bytes.as_chunks();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = wanted.iter().fold(0, |found, byte| {
            // A byte of the difference is zero where the byte is. The lowest mark is exact; a
            // borrow may mark a byte above it.
            let differs = word ^ (ONES * u64::from(*byte));
            found | (differs.wrapping_sub(ONES) & !differs)
        }) & (ONES << 7);
        if found != 0 {
            return Some(number * 8 + usize::try_from(found.trailing_zeros() / 8).unwrap_or(0));
        }
    }
    tail.iter().position(|byte| wanted.contains(byte)).map(|at| words.len() * 8 + at)
}

/// The text with the predefined entities and the character references replaced.
#[inline]
fn unescaped(text: &str) -> Result<Cow<'_, str>> {
    if find(text.as_bytes(), b'&').is_none() {
        return Ok(Cow::Borrowed(text));
    }
    let mut pieces = text.split('&');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (entity, behind) = piece.split_once(';').ok_or_else(|| wrong("& begins no entity"))?;
        let c = match entity {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            _ => character(entity).ok_or_else(|| wrong("an entity is not one of the predefined ones"))?,
        };
        out.push(c);
        out.push_str(behind);
    }
    Ok(Cow::Owned(out))
}

/// `#65` or `#x41`.
fn character(entity: &str) -> Option<char> {
    let number = entity.strip_prefix('#')?;
    let code = number.strip_prefix('x').map_or_else(|| number.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok());
    char::from_u32(code?)
}

fn wrong(reason: &str) -> Error {
    Error::Internal(format!("unexpected XML: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, Reader};
    use crate::Result;

    /// Each element with its depth and its text, in the order of their starts.
    fn elements(text: &str) -> Result<Vec<String>> {
        fn walk(reader: &mut Reader<'_>, depth: usize, out: &mut Vec<String>) -> Result<()> {
            while let Some(start) = reader.child()? {
                out.push(format!("{depth} {}", start.name));
                walk(reader, depth + 1, out)?;
            }
            Ok(())
        }
        let (mut reader, mut out) = (Reader::new(text.as_bytes())?, Vec::new());
        walk(&mut reader, 0, &mut out)?;
        Ok(out)
    }

    fn text_of(text: &str) -> Result<String> {
        let mut reader = Reader::new(text.as_bytes())?;
        reader.child()?;
        reader.text().map(|text| text.into_owned())
    }

    #[test]
    fn elements_are_read_in_order_without_their_prefixes() {
        let text = "<?xml version='1.0'?>\n<!-- c --><s:a xmlns:s=\"x>y\"><b/><c><d e='/'/></c ></s:a>\n";
        assert_eq!(elements(text).unwrap(), ["0 a", "1 b", "1 c", "2 d"]);
    }

    #[test]
    fn text_is_unescaped_and_trimmed_and_has_no_text_of_children() {
        assert_eq!(text_of("<a> x &lt;&amp;&#65;&#x42;&gt; </a>").unwrap(), "x <&AB>");
        assert_eq!(text_of("<a>x<b>no</b><![CDATA[<y>]]>z</a>").unwrap(), "x<y>z");
        assert_eq!(text_of("<a/>").unwrap(), "");
    }

    #[test]
    fn an_attribute_is_found_by_its_whole_name_or_behind_a_prefix() {
        let mut reader = Reader::new(b"<v type='Host' xmlns:i=\"u\" i:type = \"Ma&amp;naged\">h</v>").unwrap();
        let start = reader.child().unwrap().unwrap();
        assert_eq!(start.attribute("type").as_deref(), Some("Host"));
        assert_eq!(start.prefixed_attribute("type").as_deref(), Some("Ma&naged"));
        assert_eq!(start.attribute("none"), None);
    }

    #[test]
    fn a_byte_is_found_at_every_distance() {
        for length in 0..40 {
            let text = format!("{}<{}", "x".repeat(length), "<é".repeat(3));
            assert_eq!(super::find(text.as_bytes(), b'<'), Some(length));
            assert_eq!(super::find(text.as_bytes(), b'>'), None);
        }
        assert_eq!(super::end_of_tag(b"a b='>' c=\"'>\">"), Some(14));
    }

    #[test]
    fn each_element_at_the_end_of_a_path_is_read_and_the_rest_is_skipped() {
        let text = b"<a><b><x/><y> 1 </y><y>2<z/></y></b><y>no</y><b/><b><y/><x><y>no</y></x></b></a><!-- -->";
        let mut reader = Reader::new(text).unwrap();
        reader.child().unwrap();
        let mut texts = Vec::new();
        let mut read = |reader: &mut Reader<'_>| {
            texts.push(reader.text()?.into_owned());
            Ok(())
        };
        reader.each(&["b", "y"], &mut read).unwrap();
        assert!(reader.child().unwrap().is_none());
        assert_eq!(texts, ["1", "2", ""]);
    }

    #[test]
    fn a_path_is_entered_and_the_rest_is_skipped() {
        let mut reader = Reader::new(b"<a><x><y>1</y></x><b><x/><y>2</y></b><y>3</y></a>").unwrap();
        assert_eq!(reader.enter(&["a", "b", "y"]), Ok(true));
        assert_eq!(reader.text().unwrap(), "2");
        assert!(reader.child().unwrap().is_none());
        let mut reader = Reader::new(b"<a><b/></a>").unwrap();
        assert_eq!(reader.enter(&["a", "c"]), Ok(false));
    }

    #[test]
    fn a_text_that_is_not_xml_is_refused() {
        for text in [
            "",
            " ",
            "x",
            "<a>",
            "<a",
            "<a></b>",
            "<a></ab>",
            "</a>",
            "<a><b></a></b>",
            "<html><p>502</html>",
            "<>",
            "<a>&no;</a>",
        ] {
            assert!(elements(text).and(text_of(text)).is_err(), "{text:?}");
        }
        assert!(elements("<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>").is_err());
        assert!(Reader::new(&[0xff, 0xfe]).is_err());
        let deep = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(elements(&deep(DEPTH_MAX)).is_ok());
        assert!(elements(&deep(DEPTH_MAX + 1)).is_err());
    }
}
