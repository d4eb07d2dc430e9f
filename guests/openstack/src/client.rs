//! The APIs of OpenStack over the host's HTTP, and the requests that the rest of this crate makes.
//!
//! [`Cloud`] is the line between decisions and the network: tests put a cloud in memory behind it.

use std::{
    cell::{Cell, OnceCell},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use skysail_guest_sdk::{
    Error, Result, cache,
    http::{self, Request},
    paging::PAGES_MAX,
};

use crate::{
    catalog,
    features::Version,
    meaning::meaning,
    routing::Extensions,
    settings::{APIS, Api, Settings},
    wire::{Catalog, Content, Listed, Versions, one, unexpected},
};

/// The first version of the compute API that tells the flavor's name in a list of servers: a cloud
/// since Pike (2017) has it.
pub(crate) const NOVA_MICROVERSION: &str = "compute 2.47";

/// How long the endpoints and Octavia's version are kept: they change when an operator moves or
/// upgrades a service.
const DISCOVERY_TTL: Duration = Duration::from_secs(3_600);

/// How long the lists of a cloud may lag behind its writes.
pub(crate) const LAG_MAX: Duration = Duration::from_secs(60);

/// How long Octavia may take for one change: an amphora of a new load balancer is a virtual machine
/// that boots.
pub(crate) const PENDING_MAX: Duration = Duration::from_secs(600);

/// Requests in one batch: the host lets a call send 64 by default, and other requests come before
/// and after a batch.
pub(crate) const BATCH_MAX: usize = 24;

/// Requests of one call after which the call begins no further change: the host lets a call send 64
/// by default, and the address and the security group need the others.
pub(crate) const REQUESTS_MAX: usize = 44;

/// One request that is not sent yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) api: Api,
    pub(crate) method: &'static str,
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
    /// The change is made only if the object still has this revision.
    pub(crate) revision: Option<u64>,
}

impl Call {
    fn new(api: Api, method: &'static str, path: &[&str]) -> Self {
        let path = path.iter().map(|segment| (*segment).to_owned()).collect();
        Self { api, method, path, query: Vec::new(), body: None, revision: None }
    }

    /// Reads an object or a list.
    pub(crate) fn get(api: Api, path: &[&str]) -> Self {
        Self::new(api, "GET", path)
    }

    /// Creates an object.
    pub(crate) fn post(api: Api, path: &[&str], body: Value) -> Self {
        Self { body: Some(body), ..Self::new(api, "POST", path) }
    }

    /// Changes an object.
    pub(crate) fn put(api: Api, path: &[&str], body: Value) -> Self {
        Self { body: Some(body), ..Self::new(api, "PUT", path) }
    }

    /// Deletes an object.
    pub(crate) fn delete(api: Api, path: &[&str]) -> Self {
        Self::new(api, "DELETE", path)
    }

    /// Adds a parameter of the query.
    pub(crate) fn query(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    /// Adds a parameter once for each value.
    pub(crate) fn queries<'a>(self, key: &'static str, values: impl IntoIterator<Item = &'a str>) -> Self {
        values.into_iter().fold(self, |call, value| call.query(key, value))
    }

    /// The kind and the name of a new object: the path of the call does not name the object.
    fn subject(&self) -> Option<String> {
        let (kind, object) = self.body.as_ref().filter(|_| self.method == "POST")?.as_object()?.iter().next()?;
        // A rule has no name of its own, but a group.
        let name = ["name", "description", "security_group_id"].iter().find_map(|key| object.get(key)?.as_str())?;
        Some(format!("{kind} {name:?}"))
    }

    /// The request of this API.
    pub(crate) fn request(&self, api: &http::Api) -> Request {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let mut request = api.request(self.method, &path);
        for (key, value) in &self.query {
            request = request.query(key, value);
        }
        if self.api == Api::Compute {
            request = request.header("openstack-api-version", NOVA_MICROVERSION);
        }
        if let Some(revision) = self.revision {
            request = request.header("if-match", &format!("revision_number={revision}"));
        }
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// Makes the change conditional on the revision, where the cloud counts revisions.
    pub(crate) fn if_revision(self, revision: Option<u64>) -> Self {
        Self { revision, ..self }
    }
}

/// Where calls go.
pub(crate) trait Cloud {
    /// Sends the calls in parallel; the body of each response, in order.
    fn send_all(&self, calls: Vec<Call>) -> Vec<Result<Vec<u8>>>;

    /// The requests of this call up to now.
    fn sent(&self) -> usize;

    /// Keeps a text for later calls, for this time.
    fn remember(&self, name: &str, text: &str, time: Duration);

    /// The text that [`Self::remember`] kept.
    fn remembered(&self, name: &str) -> Option<String>;

    /// Drops the text that [`Self::remember`] kept.
    fn forget(&self, name: &str);

    /// Sends one call.
    fn send(&self, call: Call) -> Result<Vec<u8>> {
        let subject = call.subject();
        let answer = self.send_all(vec![call]).pop().unwrap_or_else(missing);
        answer.map_err(|error| match (subject, error) {
            // What the new object refers to is absent.
            (Some(subject), Error::NotFound(said)) => Error::NotFound(format!(
                "{subject}: {said}; correct the ID in the annotations of the Service, or in the cloud-config"
            )),
            (Some(subject), error) => error.context(&subject),
            (None, error) => error,
        })
    }

    /// The object in the response.
    fn one<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let tried = tried(&call);
        one(&self.send(call)?).map_err(|error| error.context(&tried))
    }

    /// All entries of a list, from all of its pages. A list that does not exist says nothing about
    /// its entries: the error is never `not-found`.
    fn list<T: Listed>(&self, call: Call) -> Result<Vec<T>> {
        self.lists(vec![call]).pop().unwrap_or_else(missing)
    }

    /// All entries of several lists; the first pages are read in parallel.
    fn lists<T: Listed>(&self, calls: Vec<Call>) -> Vec<Result<Vec<T>>> {
        let first = self.send_all(calls.clone());
        calls
            .into_iter()
            .zip(first)
            .map(|(call, answer)| self.rest(&call, answer.map_err(Error::never_gone)?))
            .collect()
    }

    /// The entries of the first page, and those of the pages after it.
    fn rest<T: Listed>(&self, call: &Call, first: Vec<u8>) -> Result<Vec<T>> {
        let mut all: Vec<T> = Vec::new();
        self.pages(call, first, &mut |body| {
            let content = Content::of(body)?;
            all.extend(content.read::<Vec<T>>()?);
            Ok(content.more.then(|| all.last().map_or("", Listed::id).to_owned()))
        })?;
        Ok(all)
    }

    /// Reads the first page, and the pages after it. `read` returns the ID of the last entry so far
    /// if the list goes on. Once for all types of entries: a copy for each makes the component
    /// larger by 9 KB.
    fn pages(&self, call: &Call, first: Vec<u8>, read: &mut dyn FnMut(&[u8]) -> Result<Option<String>>) -> Result<()> {
        let (mut body, mut last) = (first, String::new());
        for _ in 0..PAGES_MAX {
            let more = read(&body).map_err(|error| unexpected(&error).context(&tried(call)))?;
            // Only the marker of the link is used: the host of a link may be one that the operator
            // does not allow.
            let Some(marker) = more else { return Ok(()) };
            if marker == last {
                return Err(Error::Unavailable(format!("{}: the list does not end", tried(call))));
            }
            body = self.send(call.clone().query("marker", &marker)).map_err(Error::never_gone)?;
            last = marker;
        }
        Err(Error::Unavailable(format!("{}: the list does not end after {PAGES_MAX} pages", tried(call))))
    }
}

fn remembered(name: &str) -> String {
    format!("remembered {name}")
}

/// Method, path, first parameter and new object of a call.
fn tried(call: &Call) -> String {
    let parameter = call.query.first().map(|(key, value)| format!("?{key}={value}")).unwrap_or_default();
    let subject = call.subject().map(|subject| format!(" of {subject}")).unwrap_or_default();
    format!("{} {}{parameter}{subject}", call.method, call.path.join("/"))
}

fn missing<T>() -> Result<T> {
    Err(Error::Internal("the host returned fewer responses than requests".to_owned()))
}

/// One project in one region of one cloud.
pub(crate) struct OpenStack<'a> {
    settings: &'a Settings,
    endpoints: OnceCell<[Option<String>; APIS.len()]>,
    sent: Cell<usize>,
}

/// What a release remembers of the cloud: found by settings, so that a new cloud-config finds
/// nothing of the old one.
#[derive(Deserialize, Serialize)]
struct Discovered<T> {
    by: String,
    value: T,
}

impl<'a> OpenStack<'a> {
    /// Makes the client; sends no request.
    pub(crate) const fn new(settings: &'a Settings) -> Self {
        Self { settings, endpoints: OnceCell::new(), sent: Cell::new(0) }
    }

    /// The version of the load-balancer API.
    pub(crate) fn octavia(&self) -> Result<Version> {
        self.discovered("octavia", || {
            let root = catalog::octavia_root(self.endpoint(Api::LoadBalancer)?, self.settings)?;
            let Versions { versions } = self.api(&root).root("GET").send()?.json()?;
            let newest = versions.iter().filter_map(|version| version.id.parse().ok()).max();
            newest.ok_or_else(|| Error::Internal(format!("{root} lists no version of the load-balancer API")))
        })
    }

    /// What the network API can do.
    pub(crate) fn extensions(&self) -> Result<Extensions> {
        self.discovered("extensions", || Extensions::of(self))
    }

    /// The endpoint that the operator wrote down, else that of the catalogue.
    fn endpoint(&self, api: Api) -> Result<Option<&str>> {
        let place = APIS.iter().position(|(candidate, _, _)| *candidate == api).unwrap_or_default();
        if let Some(Some(explicit)) = self.settings.endpoints.get(place) {
            return Ok(Some(explicit));
        }
        let known = match self.endpoints.get() {
            Some(known) => known,
            None => {
                let found = self.discovered("endpoints", || {
                    let catalog: Catalog =
                        self.api(&self.settings.auth_url).get(&["v3", "auth", "catalog"]).send()?.json()?;
                    Ok(catalog::endpoints(&catalog, self.settings))
                })?;
                self.endpoints.get_or_init(|| found)
            }
        };
        Ok(known.get(place).and_then(Option::as_deref))
    }

    /// A fact about the cloud, kept for an hour. Discovery asks for no object: its error is never
    /// `not-found`.
    fn discovered<T: Serialize + DeserializeOwned>(&self, key: &str, fetch: impl FnOnce() -> Result<T>) -> Result<T> {
        let by = self.place();
        if let Some(known) = cache::get::<Discovered<T>>(key).filter(|known| known.by == by) {
            return Ok(known.value);
        }
        self.sent.set(self.sent.get() + 1);
        let found = Discovered { by, value: fetch().map_err(Error::never_gone)? };
        cache::set(key, &found, DISCOVERY_TTL);
        Ok(found.value)
    }

    /// What distinguishes this cloud from that of another cloud-config.
    fn place(&self) -> String {
        let Settings { auth_url, region, interface, endpoints, .. } = self.settings;
        format!("{auth_url} {region} {interface} {endpoints:?}")
    }

    fn api(&self, url: &str) -> http::Api {
        http::Api::new(url).credential(&self.settings.credential).judged_by(meaning)
    }

    fn request(&self, call: &Call) -> Result<Request> {
        let base = catalog::base(call.api, self.endpoint(call.api)?, self.settings)?;
        Ok(call.request(&self.api(&base)))
    }
}

impl Cloud for OpenStack<'_> {
    fn sent(&self) -> usize {
        self.sent.get()
    }

    fn remember(&self, name: &str, text: &str, time: Duration) {
        cache::set(&remembered(name), &Discovered { by: self.place(), value: text.to_owned() }, time);
    }

    fn remembered(&self, name: &str) -> Option<String> {
        let known = cache::get::<Discovered<String>>(&remembered(name))?;
        (known.by == self.place()).then_some(known.value)
    }

    fn forget(&self, name: &str) {
        cache::delete(&remembered(name));
    }

    fn send_all(&self, calls: Vec<Call>) -> Vec<Result<Vec<u8>>> {
        let requests: Result<Vec<Request>> = calls.iter().map(|call| self.request(call)).collect();
        match requests {
            Ok(requests) => {
                self.sent.set(self.sent.get() + requests.len());
                http::send_all(requests).into_iter().map(|answer| answer.map(|response| response.body)).collect()
            }
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}
