//! The client: lists in pages, actions, and the look-ups of this provider.
//!
//! A call never waits for an action: the ID of a running action is kept in the host's cache, the
//! call ends with `retry-after`, and the next call begins with a question about the action.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use skysail_guest_sdk::{
    Absent as _, Error, Result, cache,
    http::{Api, Request},
    instances::By,
    paging,
};

use crate::{
    SCHEME,
    refusal::{self, AGAIN, Refusal},
    settings::Settings,
    wire::{Action, ActionStatus, Created, LoadBalancer, Network, One, Page, Server},
};

/// Entries of a page: the most that the API gives.
const PAGE: &str = "50";

/// Time for which a running action is remembered. An action that takes longer is not asked about
/// any more; the next write reports what is wrong.
const ACTION_TTL: Duration = Duration::from_secs(600);

/// Time for which the ID of the configured network is remembered. Hetzner's own manager looks the
/// network up once, when it starts.
const NETWORK_TTL: Duration = Duration::from_secs(3_600);

/// A request: path and query are percent-encoded by the host's side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
}

impl Call {
    /// A request without query and body.
    pub(crate) fn new<const N: usize>(method: &'static str, path: [&str; N]) -> Self {
        Self { method, path: path.map(str::to_owned).to_vec(), query: Vec::new(), body: None }
    }

    /// The same with a body.
    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self> {
        self.body = Some(serde_json::to_value(body)?);
        Ok(self)
    }

    fn query(mut self, key: &'static str, value: &str) -> Self {
        self.query.push((key, value.to_owned()));
        self
    }

    /// The request of this API.
    pub(crate) fn request(&self, api: &Api) -> Request {
        let path: Vec<_> = self.path.iter().map(String::as_str).collect();
        let mut request = api.request(self.method, &path);
        for (key, value) in &self.query {
            request = request.query(key, value);
        }
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }
}

/// What the client needs of the sandbox: requests, and a cache of IDs.
pub(crate) trait Host {
    /// Sends a request and reads the response.
    fn send<T: DeserializeOwned>(&self, call: Call) -> Result<T, Refusal>;
    /// An ID that an earlier call kept; the host may have dropped it.
    fn recall(&self, key: &str) -> Option<u64>;
    /// Keeps an ID for the calls after this one.
    fn keep(&self, key: &str, id: u64, ttl: Duration);
    /// Drops an ID.
    fn forget(&self, key: &str);
}

/// The host of the sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox(Api);

impl Sandbox {
    /// Sends no request.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(Api::new(&settings.endpoint).credential(&settings.credential))
    }
}

impl Host for Sandbox {
    fn send<T: DeserializeOwned>(&self, call: Call) -> Result<T, Refusal> {
        refusal::read(call.request(&self.0).send_any()?)
    }

    fn recall(&self, key: &str) -> Option<u64> {
        cache::get(key)
    }

    fn keep(&self, key: &str, id: u64, ttl: Duration) {
        cache::set(key, &id, ttl);
    }

    fn forget(&self, key: &str) {
        cache::delete(key);
    }
}

/// One project of Hetzner Cloud.
#[derive(Debug)]
pub(crate) struct Hcloud<H> {
    pub(crate) host: H,
}

impl<H: Host> Hcloud<H> {
    /// Every server of the project.
    pub(crate) fn servers(&self) -> Result<Vec<Server>> {
        self.list("servers", &[])
    }

    /// The server of a node that the list lacks.
    ///
    /// # Errors
    ///
    /// `not-found` only where the cloud says so; `invalid` for an ID that is not a number, such as
    /// `bm-7` of a dedicated server.
    pub(crate) fn server_of(&self, by: By<'_>) -> Result<Server> {
        match by {
            By::Id(id) => {
                let id = server_id(id)?;
                self.one(["servers", &id.to_string()])
            }
            By::Name(name) => {
                let found = self.named("servers", name)?;
                found.ok_or_else(|| Error::NotFound(format!("the project has no server {name:?}")))
            }
        }
    }

    /// The ID of the configured network, if there is one.
    pub(crate) fn configured_network(&self, settings: &Settings) -> Result<Option<u64>> {
        settings.network.as_deref().map(|configured| self.network_id(configured)).transpose()
    }

    /// The ID of the configured network.
    ///
    /// # Errors
    ///
    /// `denied` where there is none: the cloud-config is wrong, or the token is one of another
    /// project; nothing is known about anything in the network.
    fn network_id(&self, configured: &str) -> Result<u64> {
        let key = format!("network/{configured}");
        if let Some(id) = self.host.recall(&key) {
            return Ok(id);
        }
        let numbered = match configured.parse::<u64>() {
            Ok(id) => self.network(id).absent_ok()?,
            Err(_) => None,
        };
        let found = match numbered {
            Some(network) => Some(network),
            None => self.named("networks", configured)?,
        };
        let Network { id, .. } = found.ok_or_else(|| {
            Error::Denied(format!(
                "the project of this token has no network {configured:?}; correct the key network, or the token"
            ))
        })?;
        self.host.keep(&key, id, NETWORK_TTL);
        Ok(id)
    }

    /// The network with this ID.
    pub(crate) fn network(&self, id: u64) -> Result<Network> {
        self.one(["networks", &id.to_string()])
    }

    /// Every load balancer with these labels.
    pub(crate) fn balancers(&self, selector: &str) -> Result<Vec<LoadBalancer>> {
        self.labelled("load_balancers", selector)
    }

    /// The load balancer with this name, which no other one of the project has.
    pub(crate) fn balancer_named(&self, name: &str) -> Result<Option<LoadBalancer>> {
        self.named("load_balancers", name)
    }

    /// The load balancer with this ID.
    pub(crate) fn balancer(&self, id: u64) -> Result<LoadBalancer> {
        self.one(["load_balancers", &id.to_string()])
    }

    /// Creates an object.
    pub(crate) fn create<T: DeserializeOwned>(
        &self,
        collection: &str,
        body: &impl Serialize,
    ) -> Result<Created<T>, Refusal> {
        self.host.send(Call::new("POST", [collection]).json(body)?)
    }

    /// Changes name or labels of an object.
    pub(crate) fn change(&self, collection: &str, id: u64, body: &impl Serialize) -> Result<()> {
        let call = Call::new("PUT", [collection, &id.to_string()]).json(body)?;
        Ok(self.host.send::<One<serde::de::IgnoredAny>>(call).map(drop)?)
    }

    /// Deletes an object, which has an answer without content; an absent one is not an error.
    pub(crate) fn delete(&self, collection: &str, id: u64) -> Result<()> {
        let call = Call::new("DELETE", [collection, &id.to_string()]);
        let answer = self.host.send::<()>(call).map_err(Error::from);
        answer.absent_ok().map(drop)
    }

    /// Starts an action of an object and waits for nothing.
    pub(crate) fn act(&self, collection: &str, id: u64, verb: &str, body: Option<&Value>) -> Result<Action, Refusal> {
        let mut call = Call::new("POST", [collection, &id.to_string(), "actions", verb]);
        call.body = body.cloned();
        self.host.send::<One<Action>>(call).map(|one| one.object)
    }

    /// Ok if the action has ended well.
    ///
    /// # Errors
    ///
    /// `retry-after` while the action runs: [`Self::settle`] of the next call asks about it.
    pub(crate) fn ended(&self, owner: &str, action: &Action) -> Result<()> {
        let Action { id, command, status, error, resources } = action;
        match status {
            ActionStatus::Success => Ok(()),
            ActionStatus::Running => {
                self.host.keep(&action_key(owner), *id, ACTION_TTL);
                Err(Error::retry_after(AGAIN, format!("action {command} ({id}) is running")))
            }
            ActionStatus::Error => {
                let text = error.as_ref().map_or_else(|| "without a reason".to_owned(), refusal::Said::text);
                let of = resources.first().map(|of| format!(" of {} {}", of.r#type, of.id)).unwrap_or_default();
                let text = format!("action {command} ({id}){of} failed: {text}");
                let code = error.as_ref().map_or("", |said| said.code.as_str());
                // No status of a request: what has no meaning by its code may end by itself.
                Err(Refusal::new(500, code.to_owned(), AGAIN, text).error)
            }
        }
    }

    /// Ok unless an action of an earlier call still runs, or failed.
    pub(crate) fn settle(&self, owner: &str) -> Result<()> {
        let key = action_key(owner);
        let Some(id) = self.host.recall(&key) else { return Ok(()) };
        let action = self.one::<Action, 2>(["actions", &id.to_string()]).absent_ok()?;
        self.host.forget(&key);
        match action {
            Some(action) => self.ended(owner, &action),
            None => Ok(()),
        }
    }

    /// Every object with these labels.
    pub(crate) fn labelled<T: DeserializeOwned>(&self, collection: &str, selector: &str) -> Result<Vec<T>> {
        self.list(collection, &[("label_selector", selector)])
    }

    /// The object with this name.
    pub(crate) fn named<T: DeserializeOwned>(&self, collection: &str, name: &str) -> Result<Option<T>> {
        let call = Call::new("GET", [collection]).query("name", name);
        let page: Page<T> = self.host.send(call).map_err(|refusal| refusal.error.never_gone())?;
        Ok(page.entries.into_iter().next())
    }

    fn one<T: DeserializeOwned, const N: usize>(&self, path: [&str; N]) -> Result<T> {
        let one: One<T> = self.host.send(Call::new("GET", path))?;
        Ok(one.object)
    }

    fn list<T: DeserializeOwned>(&self, collection: &str, filter: &[(&'static str, &str)]) -> Result<Vec<T>> {
        let mut read = 0;
        paging::collect_counted(|page| {
            let mut call = Call::new("GET", [collection]).query("per_page", PAGE);
            for (key, value) in filter {
                call = call.query(key, value);
            }
            if let Some(page) = page {
                call = call.query("page", page);
            } else {
                read = 0;
            }
            let Page { entries, meta } = self.host.send(call).map_err(|refusal| refusal.error.never_gone())?;
            read += entries.len();
            let next = meta.pagination.next_page.map(|page| page.to_string());
            Ok((entries, next, meta.pagination.total_entries.unwrap_or(read)))
        })
    }
}

/// The number in `hcloud://<number>`.
pub(crate) fn server_id(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        Error::Invalid(format!(
            "provider ID {SCHEME}://{text} is not that of a cloud server; write {SCHEME}://NUMBER, or give the node to \
             another provider"
        ))
    })
}

fn action_key(owner: &str) -> String {
    format!("action/{owner}")
}
