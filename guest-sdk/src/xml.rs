//! XML as clouds use it: documents that are read by element names, and texts that are written with
//! escapes. The feature `xml` of this crate brings it in.
//!
//! ```
//! use skysail_guest_sdk::xml;
//!
//! let text = "<r xmlns='urn:x'><set><item><id>i-1</id></item><item><id>i-2</id></item></set></r>";
//! let document = xml::parse(text.as_bytes()).unwrap();
//! let ids: Vec<_> = document.root().all(&["set", "item", "id"]).map(|id| id.text()).collect();
//! assert_eq!(ids, ["i-1", "i-2"]);
//! assert_eq!(xml::element("Name", "a<b"), "<Name>a&lt;b</Name>");
//! ```
//!
//! Names are compared without their namespace: a cloud's prefixes differ between versions. For
//! answers of megabytes [`reader`] takes less fuel and memory than a tree.

pub mod reader;

use roxmltree::{Node, ParsingOptions};

use crate::{Error, Result};

/// The maximum number of nodes of one document: a list of 10,000 machines has some million.
const NODES_MAX: u32 = 4_000_000;

/// A document that was parsed.
#[derive(Debug)]
pub struct Document<'a>(roxmltree::Document<'a>);

/// An element of a document.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a>(Node<'a, 'a>);

/// Parses a document.
///
/// # Errors
///
/// `internal` for a text that is not XML in UTF-8, that has a document type definition, which
/// could make a short text a long one, or more than four million nodes.
pub fn parse(bytes: &[u8]) -> Result<Document<'_>> {
    let wrong = |reason: String| Error::Internal(format!("unexpected XML: {reason}"));
    let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    roxmltree::Document::parse_with_options(text, options).map(Document).map_err(|error| wrong(error.to_string()))
}

impl Document<'_> {
    /// The outermost element.
    #[must_use]
    pub fn root(&self) -> Element<'_> {
        Element(self.0.root_element())
    }
}

impl<'a> Element<'a> {
    /// The name without its namespace.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.0.tag_name().name()
    }

    /// The child elements.
    pub fn children(&self) -> impl Iterator<Item = Self> + use<'a> {
        self.0.children().filter(Node::is_element).map(Self)
    }

    /// All elements at the end of a path of names.
    pub fn all<'p>(&self, path: &'p [&'p str]) -> Box<dyn Iterator<Item = Self> + 'p>
    where
        'a: 'p,
    {
        match path.split_first() {
            None => Box::new(std::iter::once(*self)),
            Some((name, rest)) => Box::new(
                self.children().filter(move |child| child.name() == *name).flat_map(move |child| child.all(rest)),
            ),
        }
    }

    /// The first element at the end of a path of names.
    #[must_use]
    pub fn first(&self, path: &[&str]) -> Option<Self> {
        path.iter().try_fold(*self, |element, name| element.children().find(|child| child.name() == *name))
    }

    /// The text of the first element at the end of a path; empty if there is none.
    #[must_use]
    pub fn text_of(&self, path: &[&str]) -> &'a str {
        self.first(path).map(|element| element.text()).unwrap_or_default()
    }

    /// The text without blanks at its ends; empty for an element without text.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.0.text().map(str::trim).unwrap_or_default()
    }

    /// The value of an attribute, by its name without the namespace.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.0.attributes().find(|attribute| attribute.name() == name).map(|attribute| attribute.value())
    }

    /// The first element of this name in the whole subtree, for a fault at a depth that differs.
    #[must_use]
    pub fn descendant(&self, name: &str) -> Option<Self> {
        self.0.descendants().find(|node| node.is_element() && node.tag_name().name() == name).map(Self)
    }
}

/// Appends a text with the five characters of XML's syntax escaped, and without the control
/// characters that XML 1.0 does not allow.
pub fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
}

/// `<name>text</name>` with the text escaped. The name is the author's and is not checked.
#[must_use]
pub fn element(name: &str, text: &str) -> String {
    let mut out = format!("<{name}>");
    escape(&mut out, text);
    out.push_str("</");
    out.push_str(name);
    out.push('>');
    out
}

#[cfg(test)]
mod tests {
    use super::{element, parse};
    use crate::Error;

    const FAULT: &str = r#"<?xml version="1.0"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="urn:i">
<soapenv:Body><soapenv:Fault><faultstring> The session is not authenticated. </faultstring>
<detail><NotAuthenticatedFault xmlns="urn:vim25" xsi:type="NotAuthenticated"/></detail>
</soapenv:Fault></soapenv:Body></soapenv:Envelope>"#;

    #[test]
    fn names_are_compared_without_their_namespace() {
        let document = parse(FAULT.as_bytes()).unwrap();
        let root = document.root();
        assert_eq!(root.name(), "Envelope");
        assert_eq!(root.text_of(&["Body", "Fault", "faultstring"]), "The session is not authenticated.");
        assert_eq!(root.text_of(&["Body", "Reply"]), "");
        let fault = root.descendant("NotAuthenticatedFault").unwrap();
        assert_eq!(fault.attribute("type"), Some("NotAuthenticated"));
    }

    #[test]
    fn a_text_that_is_not_xml_is_the_clouds_fault_and_a_dtd_is_refused() {
        for text in ["", "<html><p>502 Bad Gateway</html>", "<a>", "\u{0}"] {
            assert!(matches!(parse(text.as_bytes()), Err(Error::Internal(_))), "{text:?}");
        }
        let bomb = "<!DOCTYPE a [<!ENTITY x \"xxxxxxxx\"><!ENTITY y \"&x;&x;\">]><a>&y;</a>";
        assert!(parse(bomb.as_bytes()).is_err());
        assert!(parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn a_written_text_reads_back() {
        for text in ["a<b & 'c' \"d\" > é", "", "line\nline"] {
            let written = element("t", text);
            assert_eq!(parse(written.as_bytes()).unwrap().root().text(), text, "{written}");
        }
        assert_eq!(element("t", "\u{1}x"), "<t>x</t>");
    }
}
