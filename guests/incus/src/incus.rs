//! The Incus API over the host's HTTP. Only this module knows where Incus uses a status differently
//! from HTTP.
//!
//! Writes carry no `If-Match`: Incus accepts the header on load balancers and forwards and ignores
//! it (observed with 6.0.4). The host never runs two calls for one Service at once, and each
//! listener belongs to one Service.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use skysail_guest_sdk::{
    Absent as _, Error, Result,
    http::{Api, Request, Response, send_all},
};

use crate::{
    plan::{Kind, Listener},
    pool::Pool,
    reconcile::Cloud,
    settings::Settings,
    wire::{Allocation, Envelope, Forward, Instance, LoadBalancer, Network, Operation, Started},
};

/// Longest wait for an operation within one call; the next call asks again. Operations on
/// networks take milliseconds.
const OPERATION_WAIT: Duration = Duration::from_secs(10);

/// Wait before the next question about an operation.
const OPERATION_AGAIN: Duration = Duration::from_secs(2);

/// One project of one server.
pub(crate) struct Incus<'a> {
    api: Api,
    settings: &'a Settings,
}

impl<'a> Incus<'a> {
    /// Makes the client; sends no request.
    pub(crate) fn new(settings: &'a Settings) -> Self {
        Self { api: Api::new(&settings.endpoint).credential(&settings.credential), settings }
    }

    /// Every instance of the project, with its current state where `states` is set.
    ///
    /// # Errors
    ///
    /// `denied` also where the project does not exist: Incus returns an empty list for such a
    /// project, which would mean that every machine is gone.
    pub(crate) fn instances(&self, states: bool) -> Result<Vec<Instance>> {
        let project = &self.settings.project;
        let depth = if states { "2" } else { "1" };
        let list = self.of_project(self.api.get(&["1.0", "instances"])).query("recursion", depth);
        let mut answers = send_all(vec![self.api.get(&["1.0", "projects", project]), list]).into_iter().map(understood);
        let missing = || Error::Internal("the host returned fewer responses than requests".to_owned());
        let (there, list) = (answers.next().ok_or_else(missing)?, answers.next().ok_or_else(missing)?);
        if there.absent_ok()?.is_none() {
            return Err(Error::Denied(format!(
                "Incus has no project {project:?}, or does not show it to this certificate"
            )));
        }
        metadata(&list.map_err(never_gone)?)
    }

    fn of_project(&self, request: Request) -> Request {
        request.query("project", &self.settings.project)
    }

    fn network(&self) -> Result<&'a str> {
        self.settings
            .network
            .as_deref()
            .ok_or_else(|| Error::Unsupported("the cloud-config names no network: load balancers need one".to_owned()))
    }

    fn listeners_of(&self, network: &str, kind: Kind) -> Result<Vec<Listener>> {
        let request =
            self.of_project(self.api.get(&["1.0", "networks", network, collection(kind)])).query("recursion", "1");
        let answer = understood(request.send()).map_err(never_gone)?;
        Ok(match kind {
            Kind::LoadBalancer => {
                metadata::<Vec<LoadBalancer>>(&answer)?.into_iter().map(Listener::LoadBalancer).collect()
            }
            Kind::Forward => metadata::<Vec<Forward>>(&answer)?.into_iter().map(Listener::Forward).collect(),
        })
    }

    fn write(&self, request: Request, listener: &Listener) -> Result<Response> {
        let request = match listener {
            Listener::LoadBalancer(body) => json(request, body),
            Listener::Forward(body) => json(request, body),
        };
        let answer = understood(self.of_project(request).send())?;
        self.finished(&answer)?;
        Ok(answer)
    }

    /// Waits for the operation that a response started, if any.
    fn finished(&self, answer: &Response) -> Result<()> {
        if answer.status != 202 {
            return Ok(());
        }
        let Started { operation } = answer.json()?;
        let id = operation.split('?').next().and_then(|path| path.strip_prefix("/1.0/operations/")).unwrap_or_default();
        if id.is_empty() {
            return Err(Error::Internal(format!("Incus returned {operation:?}, which is not the URL of an operation")));
        }
        let wait =
            self.api.get(&["1.0", "operations", id, "wait"]).query("timeout", &OPERATION_WAIT.as_secs().to_string());
        // Incus forgets a finished operation after some seconds; the next call sees its result.
        let Some(answer) = understood(self.of_project(wait).send()).absent_ok()? else {
            return Err(Error::retry_after(OPERATION_AGAIN, "Incus has forgotten the operation; looking again"));
        };
        let Operation { status_code, err } = metadata(&answer)?;
        match status_code {
            200 => Ok(()),
            400..=499 => Err(meaning(Error::Unavailable(format!("the operation failed: {err}")))),
            _ => Err(Error::retry_after(OPERATION_AGAIN, "the operation of Incus is still running")),
        }
    }
}

impl Cloud for Incus<'_> {
    fn look(&self) -> Result<(Network, Kind, Vec<Listener>)> {
        let name = self.network()?;
        let project = &self.settings.project;
        let request = self.of_project(self.api.get(&["1.0", "networks", name]));
        let Some(answer) = understood(request.send()).absent_ok()? else {
            return Err(Error::Denied(format!(
                "Incus has no network {name:?} in project {project:?}, or does not show it to this certificate"
            )));
        };
        let network: Network = metadata(&answer)?;
        // Incus shows networks and their load balancers to a restricted client, but empties the
        // configuration. The configuration has the owner: without it our listeners would look
        // foreign, and a Service would lose its finalizer while its load balancer remains.
        if network.config.is_empty() {
            return Err(Error::Denied(format!(
                "Incus hides the configuration of network {name:?} from this certificate: it must be allowed to manage the network"
            )));
        }
        let kind = Kind::of(&network)?;
        let listeners = self.listeners_of(name, kind)?;
        Ok((network, kind, listeners))
    }

    fn routed(&self, network: &Network) -> Result<Pool> {
        let nowhere =
            |why: &str| Error::Invalid(format!("the cloud-config names no addresses to `listen` on, and {why}"));
        let uplink =
            network.config.get("network").ok_or_else(|| nowhere("the network has no uplink that routes any"))?;
        // Uplinks are always in the default project.
        let answer = understood(self.api.get(&["1.0", "networks", uplink]).send()).map_err(never_gone)?;
        let Network { config, .. } = metadata(&answer)?;
        let mut pool = Pool::default();
        for routes in ["ipv4.routes", "ipv6.routes"].iter().filter_map(|key| config.get(*key)) {
            pool.extend(routes.parse().map_err(Error::Internal)?);
        }
        if pool.is_empty() {
            return Err(nowhere("the uplink shows no routes to this certificate"));
        }
        Ok(pool)
    }

    fn taken(&self) -> BTreeSet<IpAddr> {
        let every = self.api.get(&["1.0", "network-allocations"]).query("all-projects", "true").query("recursion", "1");
        // Incus hides the allocations from a restricted client, and an older server has no such
        // list. Then Incus refuses a used address, and the next one is tried.
        let allocations: Vec<Allocation> = every.send().and_then(|answer| metadata(&answer)).unwrap_or_default();
        let addresses =
            allocations.iter().filter_map(|allocation| allocation.addresses.split('/').next()?.parse().ok());
        addresses.collect()
    }

    fn create(&self, listener: &Listener) -> Result<bool> {
        let request = self.api.post(&["1.0", "networks", self.network()?, collection(kind_of(listener))]);
        match self.write(request, listener) {
            Ok(_) => Ok(true),
            Err(error) if is_taken(&error) => Ok(false),
            Err(error) => Err(never_gone(error)),
        }
    }

    fn replace(&self, listener: &Listener) -> Result<()> {
        let address =
            listener.address().ok_or_else(|| Error::Internal("a listener must have an address".to_owned()))?;
        let segments = ["1.0", "networks", self.network()?, collection(kind_of(listener)), &address.to_string()];
        // `not-found` stays: the listener was removed since it was listed, and the host ensures it
        // again.
        self.write(self.api.put(&segments), listener).map(|_| ())
    }

    fn delete(&self, kind: Kind, address: IpAddr) -> Result<()> {
        let request = self.api.delete(&["1.0", "networks", self.network()?, collection(kind), &address.to_string()]);
        match understood(self.of_project(request).send()).absent_ok()? {
            Some(answer) => self.finished(&answer),
            None => Ok(()),
        }
    }
}

const fn collection(kind: Kind) -> &'static str {
    match kind {
        Kind::LoadBalancer => "load-balancers",
        Kind::Forward => "forwards",
    }
}

const fn kind_of(listener: &Listener) -> Kind {
    match listener {
        Listener::LoadBalancer(_) => Kind::LoadBalancer,
        Listener::Forward(_) => Kind::Forward,
    }
}

fn json(request: Request, body: &impl Serialize) -> Request {
    request.json(body)
}

fn metadata<T: DeserializeOwned>(answer: &Response) -> Result<T> {
    answer.json::<Envelope<T>>().map(|envelope| envelope.metadata)
}

fn understood(answer: Result<Response>) -> Result<Response> {
    answer.map_err(meaning)
}

/// The error that Incus means where it answers 500 for a refusal.
fn meaning(error: Error) -> Error {
    match error {
        Error::Unavailable(message) if message.contains("not have permission") => Error::Denied(message),
        // 412, should a later Incus compare entity tags.
        Error::Internal(message) if message.contains(": status 412") => Error::retry_after(Duration::ZERO, message),
        error => error,
    }
}

/// Whether another listener has the address: 409 on the same network, 500 on another one.
fn is_taken(error: &Error) -> bool {
    let message = error.message();
    message.contains("already exists") || message.contains("overlaps with another network or NIC")
}

/// A missing network or project is a fault of the cloud-config and does not mean that the load
/// balancer is gone.
fn never_gone(error: Error) -> Error {
    match error {
        Error::NotFound(message) => Error::Denied(message),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use skysail_guest_sdk::{Error, Retry};

    use super::{is_taken, meaning, never_gone};

    /// Texts of Incus 6.0.4.
    #[test]
    fn a_refusal_that_comes_as_a_server_error_is_denied() {
        let text = "GET https://a/1.0/instances: status 500: User does not have permissions for project \"default\"";
        assert_eq!(meaning(Error::Unavailable(text.to_owned())), Error::Denied(text.to_owned()));
        let other = Error::Unavailable("GET https://a: status 500: database is locked".to_owned());
        assert_eq!(meaning(other.clone()), other);
    }

    #[test]
    fn an_address_in_use_is_recognised_wherever_it_is_used() {
        let same = Error::RetryAfter(Retry {
            after_ms: 0,
            message: "POST x: status 409: Failed creating load balancer: A load balancer for that listen address already exists".to_owned(),
        });
        let elsewhere = Error::Unavailable(
            "POST x: status 500: Failed creating load balancer: Load balancer listen address \"198.51.100.201/32\" overlaps with another network or NIC".to_owned(),
        );
        assert!(is_taken(&same) && is_taken(&elsewhere));
        assert!(!is_taken(&Error::Unavailable("POST x: status 500: Missing VIP target(s)".to_owned())));
    }

    #[test]
    fn a_missing_network_is_never_a_missing_load_balancer() {
        assert!(matches!(never_gone(Error::NotFound("Network not found".to_owned())), Error::Denied(_)));
    }
}
