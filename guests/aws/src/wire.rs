//! The types of the APIs that this provider uses, read from XML. No decisions here.

pub(crate) mod ec2;
pub(crate) mod elb;
pub(crate) mod elb_v2;

use std::{collections::BTreeMap, str::FromStr};

use skysail_guest_sdk::{Error, Result, xml::Element};

/// Keys and values.
pub(crate) type Tags = BTreeMap<String, String>;

/// The tags of a resource: EC2 writes the names of elements in lower case, the others do not.
fn tags(element: Element<'_>, path: &[&str], key: &str, value: &str) -> Tags {
    element.all(path).map(|tag| (tag.text_of(&[key]).to_owned(), tag.text_of(&[value]).to_owned())).collect()
}

/// A text that every such element has.
pub(crate) fn required(element: Element<'_>, path: &[&str]) -> Result<String> {
    optional(element, path).ok_or_else(|| Error::Internal(format!("{} without {}", element.name(), path.join("/"))))
}

/// A text; none for an absent or empty one.
fn optional(element: Element<'_>, path: &[&str]) -> Option<String> {
    Some(element.text_of(path)).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A number that every such element has.
fn number<T: FromStr>(element: Element<'_>, path: &[&str]) -> Result<T> {
    let text = required(element, path)?;
    text.parse().map_err(|_| Error::Internal(format!("{}/{} is {text:?}", element.name(), path.join("/"))))
}

/// A number; none for an absent one and for a text that is no such number.
fn optional_number<T: FromStr>(element: Element<'_>, path: &[&str]) -> Option<T> {
    element.text_of(path).parse().ok()
}

fn texts(element: Element<'_>, path: &[&str]) -> Vec<String> {
    element.all(path).map(|one| one.text().to_owned()).filter(|text| !text.is_empty()).collect()
}
