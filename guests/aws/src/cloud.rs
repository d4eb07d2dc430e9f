//! The APIs over the host's HTTP, and what this provider asks of them. The trait [`Cloud`] allows
//! tests without AWS.

use std::{cell::Cell, time::Duration};

use serde_json::Value;
use skysail_guest_sdk::{
    Error, Result, cache,
    http::{Api, Response, send_all_any},
    paging,
    xml::{self, Element, reader::Reader},
};

use crate::{
    call::{Call, Service},
    fault::{Expected as _, Fault},
    settings::Settings,
};

/// Requests that the host allows one call by default. A call that needs more of them answers
/// `retry-after`, and the next one continues.
const REQUESTS_MAX: usize = 64;
/// Requests that a step of many requests leaves to the rest of its call: tags, attributes, and the
/// rules of some security groups.
const SPARE: usize = 8;
/// The next call continues at once; the host waits no shorter than this.
const CONTINUE_AFTER: Duration = Duration::from_secs(1);

/// What this provider needs of the world.
pub(crate) trait Cloud {
    /// Sends all calls, in parallel; one answer for each, in order.
    fn send_all(&self, calls: Vec<Call>) -> Vec<Result<Answer, Fault>>;
    /// A value that an earlier call remembered; none where it is too old or evicted.
    fn recall(&self, key: &str) -> Option<Value>;
    /// Keeps a value for later calls.
    fn remember(&self, key: &str, value: &Value, ttl: Duration);
    /// Drops a value that an earlier call remembered.
    fn forget(&self, key: &str);
    /// How many more requests the host allows this call.
    fn left(&self) -> usize;
}

/// The document of a successful call.
#[derive(Debug)]
pub(crate) struct Answer {
    /// As [`Call::tried`], for messages.
    tried: String,
    body: Vec<u8>,
}

impl Answer {
    /// What a response to a call means.
    pub(crate) fn of(call: &Call, response: Result<Response>) -> Result<Self, Fault> {
        let tried = call.tried();
        let response = response.map_err(|error| error.context(&tried))?;
        match Fault::of(&response, call.action()) {
            Some(Fault { code, error }) => Err(Fault { code, error: error.context(&tried) }),
            None => Ok(Self { tried, body: response.body }),
        }
    }

    /// Reads the document, whose root [`Fault::of`] has checked.
    ///
    /// # Errors
    ///
    /// `internal` where the document lacks something.
    pub(crate) fn read<T>(&self, read: impl FnOnce(Element<'_>) -> Result<T>) -> Result<T> {
        let parsed = || read(xml::parse(&self.body)?.root());
        parsed().map_err(|error| self.incomplete(error))
    }

    /// Reads the document without a tree; the start of the root is read already.
    ///
    /// # Errors
    ///
    /// As [`Answer::read`].
    pub(crate) fn stream<T>(&self, read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
        let streamed = || {
            let mut reader = Reader::new(&self.body)?;
            reader.child()?;
            read(&mut reader)
        };
        streamed().map_err(|error| self.incomplete(error))
    }

    fn incomplete(&self, error: Error) -> Error {
        let message = format!(
            "{}: {}; the answer is not as AWS documents it: correct the URL in [ServiceOverride] or the proxy before AWS, or \
             report the fault to the author of the provider",
            self.tried,
            error.message()
        );
        error.with_message(message)
    }
}

/// Sends one call.
pub(crate) fn send(cloud: &dyn Cloud, call: Call) -> Result<Answer, Fault> {
    let missing = || Fault::from(Error::Internal("the host returned fewer responses than requests".to_owned()));
    cloud.send_all(vec![call]).into_iter().next().unwrap_or_else(|| Err(missing()))
}

/// Sends calls that must all succeed, in parallel.
///
/// # Errors
///
/// As [`skysail_guest_sdk::http::every`].
pub(crate) fn send_every(cloud: &dyn Cloud, calls: Vec<Call>) -> Result<Vec<Answer>> {
    if calls.is_empty() {
        return Ok(Vec::new());
    }
    let answers = cloud.send_all(calls).into_iter();
    skysail_guest_sdk::http::every(answers.map(|answer| answer.map_err(|fault| fault.error)).collect())
}

/// How many requests a step of many requests may send, so that the rest of the call can follow.
pub(crate) fn allowance(cloud: &dyn Cloud) -> usize {
    cloud.left().saturating_sub(SPARE)
}

/// Sends as many of the calls as the requests of this call suffice for, and one at least. An answer
/// with one of these codes counts as success.
///
/// # Errors
///
/// `retry-after` where the next call has to send the others.
pub(crate) fn send_within(cloud: &dyn Cloud, mut calls: Vec<Call>, expected: &[&str]) -> Result<()> {
    let Some(action) = calls.first().map(Call::action) else { return Ok(()) };
    let all = calls.len();
    calls.truncate(allowance(cloud).max(1));
    let sent = calls.len();
    for answer in cloud.send_all(calls) {
        answer.unless(expected)?;
    }
    if sent < all { Err(to_be_continued(&format!("{sent} of {all} requests {action} are done"))) } else { Ok(()) }
}

/// The error of a call that made progress and has no requests left.
pub(crate) fn to_be_continued(done: &str) -> Error {
    Error::retry_after(
        CONTINUE_AFTER,
        format!("{done}: one call sends at most {REQUESTS_MAX} requests; the next call continues"),
    )
}

/// All entries of a list in pages. `entries` is the path of one entry.
pub(crate) fn list<T>(
    cloud: &dyn Cloud,
    call: &Call,
    entries: &[&str],
    read: fn(Element<'_>) -> Result<T>,
) -> Result<Vec<T>, Fault> {
    pages(cloud, call, |answer| page_of(answer, entries, read))
}

/// All entries of a list whose pages `read` reads.
pub(crate) fn pages<T>(
    cloud: &dyn Cloud,
    call: &Call,
    read: impl Fn(&Answer) -> Result<Page<T>>,
) -> Result<Vec<T>, Fault> {
    let mut fault = None;
    let listed = paging::collect(|cursor| {
        let page = call.clone().set_opt(cursor_name(call.service), cursor);
        let answer = send(cloud, page).map_err(|found| {
            let error = found.error.clone();
            fault = Some(found);
            error
        })?;
        read(&answer)
    });
    listed.map_err(|error| fault.take().unwrap_or_else(|| Fault::from(error)))
}

/// The entries of a page, and the cursor of the next one.
pub(crate) type Page<T> = (Vec<T>, Option<String>);

fn page_of<T>(answer: &Answer, entries: &[&str], read: fn(Element<'_>) -> Result<T>) -> Result<Page<T>> {
    answer.read(|root| {
        let next = root.text_of(&["nextToken"]);
        let result = root.children().find(|child| child.name().ends_with("Result"));
        let marker = result.map(|result| result.text_of(&["NextMarker"])).unwrap_or_default();
        let next = if next.is_empty() { marker } else { next };
        let next = (!next.is_empty()).then(|| next.to_owned());
        Ok((root.all(entries).map(read).collect::<Result<_>>()?, next))
    })
}

const fn cursor_name(service: Service) -> &'static str {
    match service {
        Service::Ec2 => "NextToken",
        Service::Elb | Service::ElbV2 => "Marker",
    }
}

/// AWS.
pub(crate) struct Aws<'a> {
    settings: &'a Settings,
    /// Requests of this call.
    sent: Cell<usize>,
}

impl<'a> Aws<'a> {
    /// Makes the client of one call; sends no request.
    pub(crate) const fn new(settings: &'a Settings) -> Self {
        Self { settings, sent: Cell::new(0) }
    }

    fn api(&self, service: Service) -> Api {
        let endpoint = match service {
            Service::Ec2 => &self.settings.ec2,
            Service::Elb => &self.settings.elb,
            Service::ElbV2 => &self.settings.elb_v2,
        };
        Api::new(&endpoint.url).credential(&endpoint.credential)
    }
}

impl Cloud for Aws<'_> {
    fn send_all(&self, calls: Vec<Call>) -> Vec<Result<Answer, Fault>> {
        self.sent.set(self.sent.get() + calls.len());
        // AWS answers in JSON to a request that accepts JSON.
        let request = |call: &Call| self.api(call.service).root("POST").accept("text/xml").form(call.form());
        let responses = send_all_any(calls.iter().map(request).collect());
        calls.iter().zip(responses).map(|(call, response)| Answer::of(call, response)).collect()
    }

    fn recall(&self, key: &str) -> Option<Value> {
        cache::get(key)
    }

    fn remember(&self, key: &str, value: &Value, ttl: Duration) {
        cache::set(key, value, ttl);
    }

    fn forget(&self, key: &str) {
        cache::delete(key);
    }

    fn left(&self) -> usize {
        REQUESTS_MAX.saturating_sub(self.sent.get())
    }
}
