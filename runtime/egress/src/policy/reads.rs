//! Which requests only read, and which may delete something. HTTP says it by the method (RFC 9110,
//! section 9.2.1); where an API does not follow HTTP, the operator says it in the rule.
//!
//! A provider that is not trusted may write a request that one parser takes for a read and the
//! cloud for a write. So a request counts as a read only if its parameter appears once, the names
//! of all parameters have plain characters or are those of another list, the body is not encoded,
//! and no header names another method. For the same reason what could be read in two ways counts as
//! a deletion where a rule names deletions by a parameter.

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
};
use url::form_urlencoded;

/// The methods that change nothing.
pub(crate) const SAFE_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Headers that let a server use another method than that of the request.
const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
];
const FORM: &str = "application/x-www-form-urlencoded";
/// Longest entry, in bytes.
pub(super) const ENTRY_BYTES_MAX: usize = 128;

/// An entry of `reads` or of `deletes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// `*`: every request of the rule.
    All,
    /// `Action=DescribeRegions`, or `Action=Describe*`.
    Parameter { name: String, value: String, is_prefix: bool },
}

/// A request whose origin, method and path the rules allow.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) method: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// Whether a text consists of characters that no parser decodes or splits at.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

impl Reads {
    /// None if the text is not an entry.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        let (name, value) = text.split_once('=').filter(|_| text.len() <= ENTRY_BYTES_MAX)?;
        let (value, is_prefix) = value.strip_suffix('*').map_or((value, false), |value| (value, true));
        let is_entry = is_plain(name) && is_plain(value);
        is_entry.then(|| Self::Parameter { name: name.to_owned(), value: value.to_owned(), is_prefix })
    }

    fn covers(&self, sent: Sent<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Parameter { name, .. } => parameter(sent, name).is_some_and(|found| self.names(&found)),
        }
    }

    /// As [`Self::covers`]; a request without a clear parameter may be covered.
    fn may_cover(&self, sent: Sent<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Parameter { name, .. } => parameter(sent, name).is_none_or(|found| self.names(&found)),
        }
    }

    fn names(&self, found: &str) -> bool {
        match self {
            Self::All => true,
            Self::Parameter { value, is_prefix: true, .. } => found.starts_with(value.as_str()),
            Self::Parameter { value, is_prefix: false, .. } => found == value,
        }
    }
}

/// Whether a header lets the server use another method.
fn is_overridden(sent: Sent<'_>) -> bool {
    METHOD_OVERRIDES.iter().any(|name| sent.headers.contains_key(name))
}

/// Whether the request only reads, under a rule with these entries; without entries the method
/// decides.
pub(super) fn only_reads(entries: Option<&[Reads]>, sent: Sent<'_>) -> bool {
    !is_overridden(sent)
        && match entries {
            None => SAFE_METHODS.contains(&sent.method),
            Some(entries) => entries.iter().any(|entry| entry.covers(sent)),
        }
}

/// Whether the request may delete something, under a rule with these entries beside the method.
pub(super) fn may_delete(entries: Option<&[Reads]>, sent: Sent<'_>) -> bool {
    let is_named = |entries: &[Reads]| entries.iter().any(|entry| entry.may_cover(sent));
    sent.method == "DELETE" || is_overridden(sent) || entries.is_some_and(is_named)
}

/// The value of the parameter, in the query or in a form; none if it appears more than once, or
/// could be read in two ways.
fn parameter(sent: Sent<'_>, name: &str) -> Option<String> {
    let mut content_types = sent.headers.get_all(CONTENT_TYPE).iter();
    let content_type = content_types.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_types.next().is_some() {
        return None;
    }
    if !sent.body.is_empty() && (!is_plain_form(content_type) || sent.headers.contains_key(CONTENT_ENCODING)) {
        return None;
    }
    let query = sent.query.unwrap_or_default().as_bytes();
    // Some parsers separate parameters by `;`, too.
    if query.contains(&b';') || sent.body.contains(&b';') {
        return None;
    }
    let (mut values, mut is_clear) = (Vec::new(), true);
    for (found, value) in form_urlencoded::parse(query).chain(form_urlencoded::parse(sent.body)) {
        // Some parsers drop or replace other characters of a name, so that it becomes another name,
        // or take `Action[0]` for a part of `Action`.
        is_clear &= is_plain(&found) || is_of_another_list(&found, name);
        if found.eq_ignore_ascii_case(name) {
            is_clear &= found == name && is_plain(&value);
            values.push(value);
        }
    }
    match values.as_slice() {
        [value] if is_clear => Some(value.clone().into_owned()),
        _ => None,
    }
}

/// Whether the name has an index, as in `tags[0].key`, and without its brackets does not begin with
/// the parameter's name.
fn is_of_another_list(found: &str, name: &str) -> bool {
    let bare = found.replace(['[', ']'], "");
    let begins = bare.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    !begins && is_plain(&bare)
}

/// Whether the content type is that of a form whose bytes every parser reads as ASCII.
fn is_plain_form(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    parts.next().is_some_and(|media_type| media_type.eq_ignore_ascii_case(FORM))
        && parts.all(|parameter| parameter.eq_ignore_ascii_case("charset=utf-8"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

    use super::{Reads, Sent, may_delete, only_reads};

    fn reads(
        entries: Option<&[&str]>,
        method: &str,
        query: Option<&str>,
        form: &str,
        more: &[(&'static str, &'static str)],
    ) -> bool {
        let entries: Option<Vec<_>> = entries.map(|list| list.iter().map(|text| Reads::parse(text).unwrap()).collect());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8"));
        for (name, value) in more {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        only_reads(entries.as_deref(), Sent { method, query, headers: &headers, body: form.as_bytes() })
    }

    #[test]
    fn without_entries_the_method_decides_unless_a_header_names_another_one() {
        assert!(reads(None, "GET", None, "", &[]) && reads(None, "HEAD", None, "", &[]));
        assert!(!reads(None, "POST", None, "Action=DescribeVpcs", &[]));
        for header in ["x-http-method-override", "x-http-method", "x-method-override"] {
            assert!(!reads(None, "GET", None, "", &[(header, "DELETE")]), "{header}");
            assert!(!reads(Some(&["*"]), "POST", None, "", &[(header, "DELETE")]), "{header}");
        }
    }

    #[test]
    fn a_parameter_is_found_in_the_query_and_in_a_form() {
        let entries: Option<&[&str]> = Some(&["Action=Describe*", "Action=ListTags"]);
        assert!(reads(entries, "POST", None, "Version=1&Action=DescribeVpcs", &[]));
        assert!(reads(entries, "POST", Some("Action=ListTags"), "", &[]));
        assert!(reads(entries, "POST", Some("Action=ListTags&tags[0].key=a"), "", &[]));
        assert!(!reads(entries, "POST", None, "Action=ListTagsAndMore", &[]));
        assert!(!reads(entries, "POST", None, "Action=DeleteVpc", &[]));
        // With entries the method does not decide: the same API may write by GET.
        assert!(!reads(entries, "GET", Some("Action=RunInstances"), "", &[]));
        assert!(reads(Some(&["*"]), "POST", None, "<soap/>", &[("content-type", "text/xml")]));
    }

    #[test]
    fn a_form_that_two_parsers_read_differently_is_no_read() {
        let entries: Option<&[&str]> = Some(&["Action=Describe*"]);
        for (query, form) in [
            (None, "Action=DescribeVpcs&Action=DeleteVpc"),
            (None, "Action=DeleteVpc&Action=DescribeVpcs"),
            (Some("Action=DescribeVpcs"), "Action=DeleteVpc"),
            (None, "Action=DescribeVpcs&action=DeleteVpc"),
            (None, "Action=DescribeVpcs&%41ction=DeleteVpc"),
            (None, "Action=DescribeVpcs;Action=DeleteVpc"),
            (None, "Action=DescribeVpcs%26Action=DeleteVpc"),
            (None, "Action=Describe%00Vpcs"),
            (None, "action=DescribeVpcs"),
            (None, "X=1;Action=DeleteVpc&Action=DescribeVpcs"),
            (Some("X=1;Action=DeleteVpc"), "Action=DescribeVpcs"),
            (None, "Action=DescribeVpcs&+Action=DeleteVpc"),
            (None, "Action=DescribeVpcs&Action%00=DeleteVpc"),
            (None, "Action=DescribeVpcs&=DeleteVpc"),
            (None, "Action=DescribeVpcs&action[]=DeleteVpc"),
            (None, "Action=DescribeVpcs&[Action]=DeleteVpc"),
            (None, "Action=DescribeVpcs&A[ction]=DeleteVpc"),
            (None, ""),
        ] {
            assert!(!reads(entries, "POST", query, form, &[]), "{query:?} {form}");
        }
        // The query says one thing, and a body of another type another.
        assert!(!reads(entries, "POST", Some("Action=DescribeVpcs"), "{}", &[("content-type", "application/json")]));
        // The body says one thing here, and another thing where it is decoded.
        for header in [
            ("content-encoding", "gzip"),
            ("content-type", "application/x-www-form-urlencoded; charset=ibm037"),
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8; charset=utf-7"),
        ] {
            assert!(!reads(entries, "POST", None, "Action=DescribeVpcs", &[header]), "{header:?}");
        }
    }

    fn deletes(entries: Option<&[&str]>, method: &str, form: &str, more: &[(&'static str, &'static str)]) -> bool {
        let entries: Option<Vec<_>> = entries.map(|list| list.iter().map(|text| Reads::parse(text).unwrap()).collect());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        for (name, value) in more {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        may_delete(entries.as_deref(), Sent { method, query: None, headers: &headers, body: form.as_bytes() })
    }

    #[test]
    fn the_method_delete_or_an_entry_says_that_a_request_deletes() {
        let entries: Option<&[&str]> = Some(&["Action=Delete*", "Action=ReleaseAddress"]);
        assert!(deletes(None, "DELETE", "", &[]) && deletes(entries, "DELETE", "", &[]));
        assert!(!deletes(None, "POST", "Action=DeleteVpc", &[]));
        assert!(deletes(entries, "POST", "Version=1&Action=DeleteVpc", &[]));
        assert!(deletes(entries, "POST", "Action=ReleaseAddress", &[]));
        assert!(!deletes(entries, "POST", "Action=CreateVpc", &[]));
        assert!(deletes(Some(&["*"]), "POST", "Action=CreateVpc", &[]));
        assert!(deletes(None, "POST", "", &[("x-http-method-override", "DELETE")]));
    }

    /// The component could send a deletion in such a form.
    #[test]
    fn a_form_that_could_be_read_in_two_ways_counts_as_a_deletion() {
        let entries: Option<&[&str]> = Some(&["Action=Delete*"]);
        for form in ["Action=CreateVpc&Action=DeleteVpc", "Action=CreateVpc;Action=DeleteVpc", "action=CreateVpc", ""] {
            assert!(deletes(entries, "POST", form, &[]), "{form}");
        }
        assert!(deletes(entries, "POST", "Action=CreateVpc", &[("content-encoding", "gzip")]));
    }

    #[test]
    fn a_form_with_two_content_types_is_no_read() {
        let entry = [Reads::parse("Action=Describe*").unwrap()];
        let mut headers = HeaderMap::new();
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let sent = |headers: &HeaderMap| {
            let body = b"Action=DescribeVpcs";
            only_reads(Some(&entry), Sent { method: "POST", query: None, headers, body })
        };
        assert!(sent(&headers));
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert!(!sent(&headers));
    }

    #[test]
    fn an_entry_is_a_star_or_a_parameter_with_a_value_or_its_beginning() {
        for wrong in
            ["", "Action", "Action=", "Action=*", "=Describe*", "Action=De*scribe", "Action=a b", "**", "a=b=c"]
        {
            assert_eq!(Reads::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(Reads::parse(&format!("Action={}", "a".repeat(200))), None);
        assert_eq!(Reads::parse("*"), Some(Reads::All));
    }
}
