//! One project of Hetzner Cloud in memory: the rules that the API's documentation states and that
//! Hetzner's own manager relies on. No network, no time: an action ends after a number of requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

#[path = "balancers.rs"]
mod balancers;
#[path = "machines.rs"]
mod machines;

/// The most entries of a page.
const PAGE_MAX: usize = 50;
const PAGE_DEFAULT: usize = 25;

/// Objects by ID.
type Objects = BTreeMap<u64, Value>;

/// A project, and the knobs of a test.
#[derive(Debug)]
pub(crate) struct Project {
    next_id: u64,
    collections: BTreeMap<&'static str, Objects>,
    actions: Vec<Running>,
    /// Requests that an action lasts after the one that started it; 0 ends it at once.
    pub(crate) action_requests: u32,
    /// The most load balancers of the project.
    pub(crate) balancers_max: usize,
    /// Whether managed certificates cannot be issued.
    pub(crate) issue_fails: bool,
    /// Method and path of each request, in order.
    pub(crate) requests: Vec<String>,
}

/// An action with the object that its end makes.
#[derive(Debug)]
struct Running {
    action: Value,
    left: u32,
    collection: &'static str,
    id: u64,
    /// None deletes nothing and changes nothing.
    becomes: Option<Value>,
    error: Option<(&'static str, &'static str)>,
}

/// An answer: status and body; null is no body.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// The refusal of a request.
#[derive(Debug)]
pub(crate) struct Refused {
    status: u16,
    code: &'static str,
    message: String,
}

type Outcome = Result<Answer, Refused>;

/// A request after its routing.
struct Request<'a> {
    query: &'a [(String, String)],
    body: &'a Value,
}

impl Default for Project {
    fn default() -> Self {
        Self {
            next_id: 1_000,
            collections: ["servers", "networks", "load_balancers", "certificates"]
                .map(|name| (name, Objects::new()))
                .into(),
            actions: Vec::new(),
            action_requests: 1,
            balancers_max: 100,
            issue_fails: false,
            requests: Vec::new(),
        }
    }
}

impl Project {
    /// Answers one request; `path` has no version, such as `/servers/42`.
    pub(crate) fn handle(&mut self, method: &str, path: &str, query: &[(String, String)], body: &Value) -> Answer {
        self.requests.push(format!("{method} {path}"));
        self.tick();
        self.route(method, path, &Request { query, body }).unwrap_or_else(|refused| {
            let Refused { status, code, message } = refused;
            Answer { status, body: json!({"error": {"code": code, "message": message, "details": null}}) }
        })
    }

    /// Every object of a collection, in the order of its IDs.
    pub(crate) fn all(&self, collection: &str) -> Vec<&Value> {
        self.collections.get(collection).into_iter().flat_map(Objects::values).collect()
    }

    fn route(&mut self, method: &str, path: &str, request: &Request<'_>) -> Outcome {
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let number = |text: &&str| text.parse::<u64>().map_err(|_| refused(400, "invalid_input", "invalid id"));
        match (method, parts.as_slice()) {
            ("GET", ["actions"]) => Ok(self.listed_actions(request)),
            ("GET", ["actions", id]) => self.action(number(id)?),
            ("GET", [catalog @ ("locations" | "load_balancer_types" | "server_types" | "images")]) => {
                let entries = machines::catalog(catalog);
                Ok(page(catalog, request, entries.iter().collect()))
            }
            ("GET", [collection]) => self.list(collection, request),
            ("GET", [collection, id]) => {
                let object = self.object(collection, number(id)?)?;
                Ok(Answer { status: 200, body: json!({singular(collection): object}) })
            }
            ("POST", ["servers"]) => self.create_server(request.body),
            ("POST", ["networks"]) => self.create_network(request.body),
            ("POST", ["load_balancers"]) => self.create_balancer(request.body),
            ("POST", ["certificates"]) => self.create_certificate(request.body),
            ("POST", ["servers", id, "actions", verb]) => self.change_server(number(id)?, verb, request.body),
            ("POST", ["networks", id, "actions", verb]) => self.change_network(number(id)?, verb, request.body),
            ("POST", ["load_balancers", id, "actions", verb]) => self.change_balancer(number(id)?, verb, request.body),
            ("PUT", [collection, id]) => self.update(collection, number(id)?, request.body),
            ("DELETE", [collection, id]) => self.delete(collection, number(id)?),
            _ => Err(refused(405, "method_not_allowed", format!("{method} {path} is not served"))),
        }
    }

    fn objects(&mut self, collection: &str) -> Result<(&'static str, &mut Objects), Refused> {
        let found = self.collections.iter_mut().find(|(name, _)| **name == collection);
        found.map(|(name, objects)| (*name, objects)).ok_or_else(|| refused(404, "not_found", "no such collection"))
    }

    fn object(&self, collection: &str, id: u64) -> Result<Value, Refused> {
        let object = self.collections.get(collection).and_then(|objects| objects.get(&id));
        object
            .cloned()
            .ok_or_else(|| refused(404, "not_found", format!("{} with ID '{id}' not found", singular(collection))))
    }

    fn insert(&mut self, collection: &'static str, id: u64, object: Value) {
        self.collections.entry(collection).or_default().insert(id, object);
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Refuses a name that another object of the collection has.
    fn unique(&self, collection: &str, name: &Value) -> Result<(), Refused> {
        if name.as_str().is_none_or(str::is_empty) {
            return Err(refused(422, "invalid_input", "invalid input in field 'name'"));
        }
        if self.all(collection).into_iter().any(|object| object["name"] == *name) {
            return Err(refused(409, "uniqueness_error", format!("{} name is already used", singular(collection))));
        }
        Ok(())
    }

    fn list(&self, collection: &str, request: &Request<'_>) -> Outcome {
        let objects =
            self.collections.get(collection).ok_or_else(|| refused(404, "not_found", "no such collection"))?;
        let value = |key: &str| request.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        let matches = |object: &&Value| {
            value("name").is_none_or(|name| object["name"] == name)
                && value("label_selector").is_none_or(|selector| selected(object, selector))
        };
        Ok(page(collection, request, objects.values().filter(matches).collect()))
    }

    /// Changes name and labels.
    fn update(&mut self, collection: &str, id: u64, body: &Value) -> Outcome {
        let object = self.object(collection, id)?;
        if let Some(name) = body.get("name").filter(|name| object["name"] != **name) {
            self.unique(collection, name)?;
        }
        let (collection, objects) = self.objects(collection)?;
        let Some(object) = objects.get_mut(&id) else { return Err(refused(404, "not_found", "not found")) };
        for key in ["name", "labels"] {
            if let Some(value) = body.get(key) {
                object[key] = value.clone();
            }
        }
        let changed = object.clone();
        for running in self.actions.iter_mut().filter(|running| running.collection == collection && running.id == id) {
            if let Some(becomes) = &mut running.becomes {
                becomes["name"] = changed["name"].clone();
                becomes["labels"] = changed["labels"].clone();
            }
        }
        Ok(Answer { status: 200, body: json!({singular(collection): changed}) })
    }

    fn delete(&mut self, collection: &str, id: u64) -> Outcome {
        let object = self.object(collection, id)?;
        if object["protection"]["delete"] == true {
            return Err(refused(403, "protected", format!("{} is protected from deletion", singular(collection))));
        }
        self.free(collection, id)?;
        match collection {
            "certificates" if self.is_certificate_used(id) => {
                return Err(refused(422, "resource_in_use", "certificate is used by a load balancer"));
            }
            "servers" => self.forget_server(id),
            "load_balancers" => self.forget_balancer(id),
            _ => {}
        }
        self.objects(collection)?.1.remove(&id);
        Ok(Answer { status: if collection == "servers" { 200 } else { 204 }, body: self.deletion(collection, id) })
    }

    fn deletion(&mut self, collection: &str, id: u64) -> Value {
        match collection {
            "servers" => {
                let action_id = self.new_id();
                json!({"action": action(action_id, "delete_server", "success", ("server", id))})
            }
            _ => Value::Null,
        }
    }

    /// Refuses a change of an object while an action of it runs.
    fn free(&self, collection: &str, id: u64) -> Result<(), Refused> {
        let busy = |running: &Running| running.collection == collection && running.id == id && running.left > 0;
        if !self.actions.iter().any(busy) {
            return Ok(());
        }
        Err(match collection {
            "networks" => refused(409, "conflict", "another action is running on the network"),
            _ => refused(423, "locked", format!("{} is locked", singular(collection))),
        })
    }

    /// Starts an action: at its end the object becomes this one.
    fn start(&mut self, command: &str, collection: &'static str, id: u64, becomes: Option<Value>) -> Value {
        let error = None;
        self.start_or_fail(
            command,
            Running { action: Value::Null, left: self.action_requests, collection, id, becomes, error },
        )
    }

    fn start_or_fail(&mut self, command: &str, mut running: Running) -> Value {
        running.action = action(self.new_id(), command, "running", (singular(running.collection), running.id));
        self.actions.push(running);
        if self.action_requests == 0 {
            self.end_actions();
        }
        self.actions.last().map_or(Value::Null, |running| running.action.clone())
    }

    fn tick(&mut self) {
        for running in &mut self.actions {
            running.left = running.left.saturating_sub(1);
        }
        self.end_actions();
    }

    fn end_actions(&mut self) {
        let mut changes = Vec::new();
        for running in
            self.actions.iter_mut().filter(|running| running.left == 0 && running.action["status"] == "running")
        {
            running.action["progress"] = json!(100);
            running.action["finished"] = json!(NOW);
            match running.error {
                Some((code, message)) => {
                    running.action["status"] = json!("error");
                    running.action["error"] = json!({"code": code, "message": message});
                }
                None => running.action["status"] = json!("success"),
            }
            changes.extend(running.becomes.take().map(|object| (running.collection, running.id, object)));
        }
        for (collection, id, object) in changes {
            self.insert(collection, id, object);
        }
    }

    fn action(&self, id: u64) -> Outcome {
        let found = self.actions.iter().find(|running| running.action["id"] == id);
        let action = found.map(|running| running.action.clone());
        let action = action.ok_or_else(|| refused(404, "not_found", format!("action with ID '{id}' not found")))?;
        Ok(Answer { status: 200, body: json!({"action": action}) })
    }

    fn listed_actions(&self, request: &Request<'_>) -> Answer {
        let asked =
            |id: &Value| request.query.iter().any(|(key, value)| key == "id" && value.parse().ok() == id.as_u64());
        let actions: Vec<_> =
            self.actions.iter().map(|running| &running.action).filter(|action| asked(&action["id"])).collect();
        page("actions", request, actions)
    }
}

/// The time of every object; nothing reads it.
pub(crate) const NOW: &str = "2026-02-20T12:00:00Z";

fn refused(status: u16, code: &'static str, message: impl Into<String>) -> Refused {
    Refused { status, code, message: message.into() }
}

fn action(id: u64, command: &str, status: &str, (kind, of): (&str, u64)) -> Value {
    json!({
        "id": id, "command": command, "status": status, "progress": if status == "success" { 100 } else { 0 },
        "started": NOW, "finished": null, "error": null, "resources": [{"id": of, "type": kind}],
    })
}

fn started(action: &Value) -> Answer {
    Answer { status: 201, body: json!({"action": action}) }
}

fn singular(collection: &str) -> &str {
    collection.strip_suffix('s').unwrap_or(collection)
}

/// Requirements of the form `key=value` and `key`.
fn selected(object: &Value, selector: &str) -> bool {
    selector.split(',').all(|part| match part.split_once('=') {
        Some((key, value)) => object["labels"].get(key).is_some_and(|label| label == value),
        None => object["labels"].get(part).is_some(),
    })
}

fn page(collection: &str, request: &Request<'_>, entries: Vec<&Value>) -> Answer {
    let number = |key: &str, default: usize| {
        let value = request.query.iter().find(|(name, _)| name == key);
        value.and_then(|(_, value)| value.parse().ok()).filter(|number| *number > 0).unwrap_or(default)
    };
    let (number, size, total) = (number("page", 1), number("per_page", PAGE_DEFAULT).min(PAGE_MAX), entries.len());
    let last = total.div_ceil(size).max(1);
    let shown: Vec<_> = entries.into_iter().skip((number - 1) * size).take(size).collect();
    let pagination = json!({
        "page": number, "per_page": size, "total_entries": total, "last_page": last,
        "previous_page": (number > 1).then(|| number - 1), "next_page": (number < last).then_some(number + 1),
    });
    Answer { status: 200, body: json!({collection: shown, "meta": {"pagination": pagination}}) }
}
