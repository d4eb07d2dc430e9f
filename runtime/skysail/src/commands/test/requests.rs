//! The requests of a call, and what can be told from them without knowledge of the cloud.

use skysail_host::{
    egress::EgressPolicy,
    recording::{Body, Exchange},
};
use skysail_provider::text::one_line;

use crate::args::ReadRequest;

/// Longest text of a request in a message, in bytes.
const LINE_BYTES_MAX: usize = 300;

/// A request that the component made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) body: Option<Body>,
    /// The status of the answer, if there was one.
    pub(super) status: Option<u16>,
    /// Whether the request may change something.
    pub(super) writes: bool,
}

/// Which requests only read.
#[derive(Debug)]
pub(super) struct Reads<'a> {
    /// The operator's rules.
    pub(super) egress: &'a EgressPolicy,
    /// What the command line names.
    pub(super) named: &'a [ReadRequest],
}

impl Reads<'_> {
    /// The request of a recorded call.
    pub(super) fn judge(&self, exchange: &Exchange) -> Sent {
        let Exchange { method, url, headers, body, response, .. } = exchange;
        let pair = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers: Vec<_> = headers.iter().filter_map(pair).collect();
        let bytes = body.as_ref().map(|Body(bytes)| &bytes[..]).unwrap_or_default();
        let reads = self.is_named(method, url) || self.egress.is_read(method, url, &headers, bytes);
        let status = response.as_ref().map(|response| response.status);
        Sent { method: method.clone(), url: url.clone(), body: body.clone(), status, writes: !reads }
    }

    fn is_named(&self, method: &str, url: &str) -> bool {
        let Ok(url) = url::Url::parse(url) else { return false };
        self.named.iter().any(|read| read.covers(method, url.path()))
    }
}

impl Sent {
    /// The request in a message.
    pub(super) fn line(&self) -> String {
        let Self { method, url, body, status, .. } = self;
        let body = body.as_ref().and_then(Body::text).map(|text| format!(" {text}")).unwrap_or_default();
        let status = status.map(|status| format!(" (answer {status})")).unwrap_or_default();
        format!("{}{status}", one_line(&format!("{method} {url}{body}"), LINE_BYTES_MAX))
    }

    fn text(&self) -> String {
        let body = self.body.as_ref().map(|Body(bytes)| String::from_utf8_lossy(bytes).into_owned());
        format!("{} {}", self.url, body.unwrap_or_default())
    }

    fn is_again(&self, other: &Self) -> bool {
        (&self.method, &self.url, &self.body) == (&other.method, &other.url, &other.body)
    }

    /// Whether the request changes nothing although it is a write: the PUT of an earlier call once
    /// more, or the deletion of something that the cloud does not have (RFC 9110, section 9.2.2).
    fn changes_nothing_after(&self, before: &[Self]) -> bool {
        match self.method.as_str() {
            "PUT" => before.iter().any(|earlier| self.is_again(earlier)),
            "DELETE" => matches!(self.status, Some(404 | 410)),
            _ => false,
        }
    }
}

/// The writes of a call that should change nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// Those that may have changed something, as lines.
    pub(super) changes: Vec<String>,
    /// The first of those that changed nothing.
    pub(super) repeated: Option<String>,
}

/// Judges the writes of a call, after a call that made these requests.
pub(super) fn writes_after(before: &[Sent], requests: &[Sent]) -> Writes {
    let mut writes = Writes::default();
    for request in requests.iter().filter(|request| request.writes) {
        if request.changes_nothing_after(before) {
            writes.repeated.get_or_insert_with(|| request.line());
        } else {
            writes.changes.push(request.line());
        }
    }
    writes
}

/// Whether a write contains this word or number, and not as a part of another one.
pub(super) fn mentions(requests: &[Sent], wanted: &str) -> bool {
    let is_word = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == wanted);
    requests.iter().filter(|request| request.writes).any(|request| is_word(&request.text().to_ascii_lowercase()))
}

/// Whether the call made the request again after it had failed.
pub(super) fn repeats(requests: &[Sent], method: &str, url: &str) -> bool {
    requests.iter().filter(|request| (&*request.method, &*request.url) == (method, url)).count() > 1
}

#[cfg(test)]
mod tests {
    use skysail_host::{
        egress::{EgressPolicy, EgressRuleSpec, EgressSpec},
        recording::{Body, Exchange, Response},
    };

    use super::{Reads, Sent, mentions, repeats, writes_after};
    use crate::args::{Args, Command};

    fn sent(method: &str, path: &str, body: &str, status: u16) -> Sent {
        Sent {
            method: method.to_owned(),
            url: format!("https://cloud.example.com{path}"),
            body: (!body.is_empty()).then(|| Body::from(body.to_owned())),
            status: Some(status),
            writes: method != "GET",
        }
    }

    #[test]
    fn a_request_reads_by_its_method_by_the_rules_or_because_the_command_line_names_it() {
        let rule =
            EgressRuleSpec { origins: vec!["https://cloud.example.com".to_owned()], ..EgressRuleSpec::default() };
        let egress = EgressPolicy::new(&EgressSpec { rules: vec![rule], ..EgressSpec::default() }).unwrap();
        let args = ["skysail", "test", "a", "--provider-file", "b", "--reads", "POST /graphql"];
        let Command::Test(args) = <Args as clap::Parser>::try_parse_from(args).unwrap().command else { panic!() };
        let reads = Reads { egress: &egress, named: &args.reads };
        let writes = |method: &str, url: &str| {
            let exchange = Exchange {
                method: method.to_owned(),
                url: url.to_owned(),
                headers: vec!["accept: */*".to_owned()],
                credential: None,
                timeout_ms: None,
                body: None,
                response: Some(Response { status: 200, headers: Vec::new(), body: None }),
                failure: None,
            };
            reads.judge(&exchange).writes
        };
        assert!(!writes("GET", "https://cloud.example.com/v1?a=b"));
        assert!(writes("POST", "https://cloud.example.com/v1"));
        assert!(
            !writes("POST", "https://cloud.example.com/graphql?a=b")
                && writes("PUT", "https://cloud.example.com/graphql")
        );
    }

    #[test]
    fn a_repeated_put_and_a_deletion_of_nothing_change_nothing() {
        let before = [sent("PUT", "/a", "{1}", 200), sent("POST", "/b", "{}", 201)];
        let again = [sent("GET", "/a", "", 200), sent("PUT", "/a", "{1}", 200), sent("DELETE", "/c", "", 404)];
        let writes = writes_after(&before, &again);
        assert_eq!((writes.changes.len(), writes.repeated), (0, Some(before[0].line())));
        let others = [sent("PUT", "/a", "{2}", 200), sent("POST", "/b", "{}", 201), sent("DELETE", "/c", "", 204)];
        let lines: Vec<_> = others.iter().map(Sent::line).collect();
        assert_eq!(writes_after(&before, &others).changes, lines);
        assert_eq!(lines[0], "PUT https://cloud.example.com/a {2} (answer 200)");
    }

    #[test]
    fn a_number_is_mentioned_as_a_whole_and_only_by_a_write() {
        let requests = [sent("GET", "/x/81", "", 200), sent("POST", "/x", "{\"port\":80,\"protocol\":\"TCP\"}", 201)];
        assert!(mentions(&requests, "80") && mentions(&requests, "tcp"));
        assert!(!mentions(&requests, "8") && !mentions(&requests, "81"));
    }

    #[test]
    fn a_request_is_repeated_if_the_call_made_it_more_than_once() {
        let requests = [sent("PUT", "/a", "{1}", 503), sent("GET", "/a", "", 200), sent("PUT", "/a", "{2}", 200)];
        assert!(repeats(&requests, "PUT", "https://cloud.example.com/a"));
        assert!(!repeats(&requests, "GET", "https://cloud.example.com/a"));
    }
}
