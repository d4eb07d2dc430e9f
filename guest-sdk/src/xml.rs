//! XML as clouds use it: documents that are read by element names, and texts that are written with
//! escapes.
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
//! answers of megabytes [`reader`] takes less memory than a tree.

pub mod reader;

use std::borrow::Cow;

use self::reader::{Reader, Start, Tag};
use crate::{Error, Result};

/// The maximum number of elements of one document: a list of 10,000 machines has some million.
const ELEMENTS_MAX: usize = 4_000_000;

/// A document that was parsed.
#[derive(Debug)]
pub struct Document<'a> {
    /// In the order of their starts; the first one is the root.
    nodes: Vec<Node<'a>>,
}

#[derive(Debug)]
struct Node<'a> {
    start: Start<'a>,
    text: Cow<'a, str>,
    /// The position behind the last element of the subtree: where the next sibling is.
    end: usize,
}

/// An element of a document.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    node: &'a Node<'a>,
    /// The elements below it.
    below: &'a [Node<'a>],
    /// The position of the first of them in the document.
    at: usize,
}

/// Parses a document.
///
/// # Errors
///
/// `internal` for a text that is not XML in UTF-8, that has a document type definition, which
/// could make a short text a long one, or more than four million elements.
pub fn parse(bytes: &[u8]) -> Result<Document<'_>> {
    let mut reader = Reader::new(bytes)?;
    let (mut nodes, mut open) = (Vec::<Node<'_>>::new(), Vec::<usize>::new());
    loop {
        let mut text = Cow::Borrowed("");
        let tag = reader.tag(Some(&mut text))?;
        let innermost = open.last().and_then(|at| nodes.get_mut(*at));
        match innermost {
            // The blanks between elements.
            _ if text.trim_ascii().is_empty() => {}
            Some(node) => reader::append(&mut node.text, text),
            None => return Err(Error::Internal("unexpected XML: text outside of the root".to_owned())),
        }
        match tag {
            Tag::Start(_) if nodes.len() >= ELEMENTS_MAX => {
                return Err(Error::Internal(format!("unexpected XML: more than {ELEMENTS_MAX} elements")));
            }
            Tag::Start(_) if open.is_empty() && !nodes.is_empty() => {
                return Err(Error::Internal("unexpected XML: two roots".to_owned()));
            }
            Tag::Start(start) => {
                open.push(nodes.len());
                nodes.push(Node { start, text: Cow::Borrowed(""), end: 0 });
            }
            Tag::End => {
                let end = nodes.len();
                match open.pop().and_then(|at| nodes.get_mut(at)) {
                    Some(node) => node.end = end,
                    // The end of the document: the reader has seen a root.
                    None => return Ok(Document { nodes }),
                }
            }
        }
    }
}

impl Document<'_> {
    /// The outermost element.
    #[must_use]
    pub fn root(&self) -> Element<'_> {
        /// What a document without a root would have; [`parse`] returns none.
        static EMPTY: Node<'static> = Node { start: Start::NONE, text: Cow::Borrowed(""), end: 0 };
        let (node, below) = self.nodes.split_first().unwrap_or((&EMPTY, &[]));
        Element { node, below, at: 1 }
    }
}

impl<'a> Element<'a> {
    /// The name without its namespace.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.node.start.name
    }

    /// The child elements.
    pub fn children(&self) -> impl Iterator<Item = Self> + use<'a> {
        let (mut rest, mut at) = (self.below, self.at);
        std::iter::from_fn(move || {
            let (node, behind) = rest.split_first()?;
            let below = behind.get(..node.end - at - 1)?;
            let child = Self { node, below, at: at + 1 };
            rest = behind.get(below.len()..)?;
            at = node.end;
            Some(child)
        })
    }

    /// All descendants that are reached by child elements with these names, one name for each
    /// level, in document order.
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

    /// The descendant that is reached by child elements with these names: at each level the first
    /// child with the name.
    #[must_use]
    pub fn first(&self, path: &[&str]) -> Option<Self> {
        path.iter().try_fold(*self, |element, name| element.children().find(|child| child.name() == *name))
    }

    /// The text of the element that [`Self::first`] finds; empty if there is none.
    #[must_use]
    pub fn text_of(&self, path: &[&str]) -> &'a str {
        self.first(path).map(|element| element.text()).unwrap_or_default()
    }

    /// The text without blanks at its ends, and without that of children; empty for an element
    /// without text.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.node.text.trim_ascii()
    }

    /// The value of an attribute, by its name without the namespace.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<Cow<'a, str>> {
        self.node.start.attribute(name).or_else(|| self.node.start.prefixed_attribute(name))
    }

    /// The first element of this name in the whole subtree, for a fault at a depth that differs.
    #[must_use]
    pub fn descendant(&self, name: &str) -> Option<Self> {
        self.children().find_map(|child| if child.name() == name { Some(child) } else { child.descendant(name) })
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
        assert_eq!(fault.attribute("type").as_deref(), Some("NotAuthenticated"));
        assert!(root.descendant("Nothing").is_none());
    }

    #[test]
    fn elements_are_found_at_every_depth_in_the_order_of_the_document() {
        let document = parse(b"<r><a><b>1</b><c/><b>2</b></a><c><a><b>no</b></a></c><a><b>3</b></a>t</r>").unwrap();
        let root = document.root();
        let texts: Vec<_> = root.all(&["a", "b"]).map(|b| b.text()).collect();
        assert_eq!(texts, ["1", "2", "3"]);
        let names: Vec<_> = root.children().map(|child| child.name()).collect();
        assert_eq!(names, ["a", "c", "a"]);
        assert_eq!((root.text(), root.text_of(&["c", "a", "b"])), ("t", "no"));
        assert!(root.first(&["a", "x"]).is_none());
    }

    #[test]
    fn a_text_that_is_not_xml_is_the_clouds_fault_and_a_dtd_is_refused() {
        for text in ["", "<html><p>502 Bad Gateway</html>", "<a>", "\u{0}", "x<a/>", "<a/>x", "<a/><b/>"] {
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
