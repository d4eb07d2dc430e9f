//! The faults of the Kubernetes API. Also reports the requests of the processes to the referee.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::StatusCode;
use skysail_dev::api::{ApiError, ApiServer, Fault, Faults, RequestInfo};
use tokio::sync::mpsc::Sender;

use crate::{
    Plan, Referee,
    chance::Chance,
    client::{PEOPLE, REFEREE},
    cloud::Cloud,
    other_controller::OtherController,
    plan::ApiWeather,
    referee::text,
    story::Story,
};

/// Draws a fault for each request of a process; requests of people and of the referee never fail.
pub(crate) struct Weather {
    inner: Mutex<Inner>,
    referee: Arc<Referee>,
    clouds: Vec<Arc<Cloud>>,
    other_controller: OtherController,
    story: Story,
    /// How many objects there are: a tenth of their names.
    objects: u32,
    /// Names of Services whose status a process writes.
    written: Sender<String>,
}

struct Inner {
    api: ApiWeather,
    chance: Chance,
    /// Processes that cannot reach the API.
    cut_off: BTreeSet<String>,
    /// No watch begins.
    watches_refused: bool,
    /// Another controller writes before each patch of a Service or a node.
    overtakes_always: bool,
    /// No process may list Services.
    services_forbidden: bool,
    /// No process receives the answer to its deletion of a node.
    node_deletions_lost: bool,
}

impl Weather {
    pub(crate) fn new(
        plan: &Plan,
        server: &Arc<ApiServer>,
        referee: Arc<Referee>,
        clouds: Vec<Arc<Cloud>>,
        (story, written): (Story, Sender<String>),
    ) -> Self {
        let inner = Inner {
            api: plan.api.clone(),
            chance: Chance::of(plan.seed, "api"),
            cut_off: BTreeSet::new(),
            watches_refused: false,
            overtakes_always: false,
            services_forbidden: false,
            node_deletions_lost: false,
        };
        let objects = u32::try_from(plan.names.div_ceil(10)).unwrap_or(u32::MAX);
        let other_controller = OtherController::new(Arc::clone(server), Arc::clone(&referee), story.clone());
        Self { inner: Mutex::new(inner), referee, clouds, other_controller, story, objects, written }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all faults.
    pub(crate) fn clear_up(&self) {
        let mut inner = self.lock();
        inner.api = ApiWeather::default();
        inner.cut_off.clear();
    }

    /// Forbids all processes to list Services, or allows it again.
    pub(crate) fn forbid_services(&self, forbidden: bool) {
        self.lock().services_forbidden = forbidden;
    }

    /// Refuses each new watch, or accepts watches again.
    pub(crate) fn refuse_watches(&self, refused: bool) {
        self.lock().watches_refused = refused;
    }

    /// Another controller writes before each patch of a Service or a node, or no longer.
    pub(crate) fn overtake_always(&self, overtakes: bool) {
        self.lock().overtakes_always = overtakes;
    }

    /// From now on no process receives the answer to its deletion of a node.
    pub(crate) fn lose_node_deletions(&self) {
        self.lock().node_deletions_lost = true;
    }

    /// Cuts a process off from the API, or connects it again.
    pub(crate) fn cut_off(&self, process: &str, cut: bool) {
        let mut inner = self.lock();
        if cut {
            inner.cut_off.insert(process.to_owned());
        } else {
            inner.cut_off.remove(process);
        }
    }

    /// Reports a deletion of a node to the referee if the process has too few answers that the
    /// machine is missing, or if a cloud has the machine and has not lied. The node may still stay,
    /// because the request may name another UID.
    fn watch_deletion(&self, process: &str, name: &str, carried_out: Duration) {
        let Some(node) = self.referee.object(&format!("/api/v1/nodes/{name}")) else { return };
        let (id, uid) = (text(&node, "/spec/providerID"), text(&node, "/metadata/uid"));
        let there = self.clouds.iter().any(|cloud| cloud.state().behind(id, name).is_some());
        let lied = self.referee.is_lied_about(uid);
        if (there && !lied) || !self.referee.is_confirmed_missing(process, uid) {
            self.referee.suspect(name, uid, carried_out);
        }
        self.referee.deletes(process, uid, &node);
    }
}

impl Faults for Weather {
    fn judge(&self, request: &RequestInfo) -> Fault {
        let who = request.user_agent.as_str();
        if [PEOPLE, REFEREE].contains(&who) {
            return Fault::None;
        }
        let RequestInfo { verb, resource, subresource, name, .. } = request;
        let writes = matches!(*verb, "create" | "update" | "patch" | "delete");
        match resource.as_str() {
            // A new Event has no name yet; later its name begins with that of its object.
            "events" if name.is_empty() => self.referee.spends_for(format!("new Events by {who}"), self.objects),
            "events" => self.referee.spends(format!("Events {} by {who}", name.rsplit_once('.').unwrap_or_default().0)),
            _ if writes && resource != "leases" => self.referee.spends(format!("writes of {resource} {name}")),
            _ => self.referee.spends(format!("{verb} of {resource} {name} by {who}")),
        }
        if writes && resource != "leases" {
            self.referee.writes(who, &format!("{verb} {resource}/{subresource} {name}"));
            if resource != "events" {
                self.story.tell("api", format_args!("{verb} {resource} {name} {subresource} (for {who})"));
            }
            if resource == "services" && subresource == "status" {
                // The rival may miss a write.
                drop(self.written.try_send(name.clone()));
            }
        }
        if OtherController::is_interested_in(request) {
            let (always, sometimes) = self.lock().is_overtaken();
            if always {
                self.other_controller.writes(request);
            } else if sometimes {
                self.other_controller.marks(request);
            }
        }
        let fault = self.lock().draw(request, writes);
        if request.verb == "delete" && request.resource == "nodes" {
            let carried_out = if let Fault::Latency(after) = &fault { *after } else { Duration::ZERO };
            self.watch_deletion(who, &request.name, carried_out);
        }
        if matches!(fault, Fault::StaleList(_)) {
            self.referee.past_is_shown();
        }
        if fault != Fault::None {
            let RequestInfo { verb, resource, name, .. } = request;
            // Names of Events contain the real time, which the seed does not decide.
            let name = if resource == "events" { "" } else { name };
            self.story.tell("api", format_args!("{verb} {resource} {name} (for {who}) meets {}", told(&fault)));
        }
        fault
    }
}

impl Inner {
    /// Whether another controller writes before each patch, and before this one.
    fn is_overtaken(&mut self) -> (bool, bool) {
        (self.overtakes_always, self.chance.once_in(self.api.overtaken))
    }

    fn draw(&mut self, request: &RequestInfo, writes: bool) -> Fault {
        if self.cut_off.contains(&request.user_agent) {
            return Fault::unavailable();
        }
        if self.watches_refused && request.verb == "watch" {
            return Fault::unavailable();
        }
        if self.services_forbidden && request.resource == "services" && matches!(request.verb, "list" | "watch") {
            return Fault::Refuse(error(StatusCode::FORBIDDEN, "Forbidden", "services is forbidden"));
        }
        if self.node_deletions_lost && request.resource == "nodes" && request.verb == "delete" {
            return lost_answer();
        }
        let (api, chance) = (self.api.clone(), &mut self.chance);
        if request.verb == "watch" && chance.once_in(api.dropped_watch) {
            return Fault::DropWatchAfter(chance.number(1..=20));
        }
        if request.verb == "watch" && chance.once_in(api.expired_watch) {
            return Fault::ExpireWatch;
        }
        if request.verb == "watch" && chance.once_in(api.delayed_watch) {
            return Fault::DelayWatch(chance.milliseconds(100..=10_000));
        }
        if request.verb == "watch" && chance.once_in(api.stalled_watch) {
            return Fault::DelayWatch(chance.milliseconds(60_000..=300_000));
        }
        if chance.once_in(api.swallowed) {
            return Fault::NeverAnswer { done: false };
        }
        if chance.once_in(api.done_and_swallowed) {
            return Fault::NeverAnswer { done: true };
        }
        if request.verb == "list" && chance.once_in(api.stale_list) {
            return Fault::StaleList(u64::try_from(chance.number(1..=200)).unwrap_or_default());
        }
        if writes && chance.once_in(api.conflict) {
            return Fault::Refuse(error(StatusCode::CONFLICT, "Conflict", "the object has been modified"));
        }
        if writes && chance.once_in(api.lost_answer) {
            return lost_answer();
        }
        if chance.once_in(api.too_many) {
            return Fault::too_many_requests(u32::try_from(chance.number(1..=5)).unwrap_or_default());
        }
        if chance.once_in(api.internal) {
            return Fault::Refuse(error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "etcdserver: leader changed",
            ));
        }
        if chance.once_in(api.slow) {
            return Fault::Latency(chance.milliseconds(10..=4_000));
        }
        if chance.once_in(api.late_answer) {
            return Fault::LateAnswer(chance.milliseconds(10..=6_000));
        }
        Fault::None
    }
}

fn lost_answer() -> Fault {
    Fault::LoseAnswer(error(StatusCode::GATEWAY_TIMEOUT, "Timeout", "request did not complete in time"))
}

fn error(code: StatusCode, reason: &'static str, message: &str) -> ApiError {
    ApiError::new(code, reason, message)
}

fn told(fault: &Fault) -> String {
    let ms = |time: &Duration| time.as_millis().to_string();
    match fault {
        Fault::None => "nothing".to_owned(),
        Fault::Latency(time) => format!("a latency of {} ms", ms(time)),
        Fault::Refuse(error) => format!("{} {}", error.code.as_u16(), error.reason),
        Fault::LoseAnswer(error) => format!("{} {}, although it is done", error.code.as_u16(), error.reason),
        Fault::NeverAnswer { done: false } => "no answer".to_owned(),
        Fault::NeverAnswer { done: true } => "no answer, although it is done".to_owned(),
        Fault::LateAnswer(time) => format!("an answer that comes {} ms after it was done", ms(time)),
        Fault::DropWatchAfter(events) => format!("an end after {events} events"),
        Fault::ExpireWatch => "410 Expired".to_owned(),
        Fault::DelayWatch(time) => format!("a delay of {} ms", ms(time)),
        Fault::StaleList(revisions) => format!("the state {revisions} revisions ago"),
    }
}
