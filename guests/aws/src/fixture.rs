//! Common code of the tests: an in-memory AWS at the level of its query protocol, with the rules
//! that moto 5.2.5 and Amazon's documents show.

mod ec2;
mod elb;
mod elb_v2;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

use serde_json::Value;
use skysail_guest_sdk::{Error, Protocol, ServicePort, http::Response};

pub(crate) use self::{
    ec2::{Ec2, machine, vpc},
    elb::Elb,
    elb_v2::ElbV2,
};
use crate::{
    call::{Call, Service},
    cloud::{Answer, Cloud},
    fault::Fault,
    settings::{self, Settings},
};

/// A cloud-config of cluster `k1` in one VPC.
pub(crate) const CONFIG: &str = "[Global]\nRegion = us-east-1\nVPC = vpc-1\nKubernetesClusterID = k1\n";

/// The settings of the usual cloud-config with more lines.
pub(crate) fn settings(more: &str) -> Settings {
    settings::parse(&format!("{CONFIG}{more}")).config().unwrap()
}

/// The same without the cluster's ID.
pub(crate) fn settings_without_id(more: &str) -> Settings {
    settings::parse(&format!("{}{more}", CONFIG.replace("KubernetesClusterID = k1\n", ""))).config().unwrap()
}

/// AWS in memory.
#[derive(Default)]
pub(crate) struct FakeAws {
    pub(crate) ec2: RefCell<Ec2>,
    pub(crate) elb: RefCell<Elb>,
    pub(crate) elb_v2: RefCell<ElbV2>,
    /// Actions in the order of the calls, since the last look.
    calls: RefCell<Vec<String>>,
    writes: Cell<usize>,
    /// Writes that succeed before every call fails, as at the end of a process.
    dies_after: Cell<Option<usize>>,
    /// Requests that the sandbox still allows; none for any number.
    left: Cell<Option<usize>>,
    /// Actions whose next call gets this status and this body.
    answers: RefCell<Vec<(&'static str, u16, String)>>,
    remembered: RefCell<BTreeMap<String, Value>>,
}

impl FakeAws {
    /// The actions since the last call of this function.
    pub(crate) fn called(&self) -> Vec<String> {
        self.calls.take()
    }

    /// Lets every call after this many more writes fail.
    pub(crate) fn die_after(&self, writes: usize) {
        self.dies_after.set(Some(self.writes.get() + writes));
    }

    /// Ends what [`FakeAws::die_after`] began.
    pub(crate) fn live(&self) {
        self.dies_after.set(None);
    }

    /// Begins a call that may send this many requests; none for any number.
    pub(crate) fn limit(&self, requests: Option<usize>) {
        self.left.set(requests);
    }

    /// Lets AWS refuse the next call of this action.
    pub(crate) fn refuse_once(&self, action: &'static str, code: &'static str) {
        self.answer_once(action, 400, error_document(code, "no"));
    }

    /// Gives the next call of this action this status and this body: AWS or a gateway answers.
    pub(crate) fn answer_once(&self, action: &'static str, status: u16, body: String) {
        self.answers.borrow_mut().push((action, status, body));
    }

    fn prepared(&self, call: &Call) -> Option<Result<Answer, Fault>> {
        let mut answers = self.answers.borrow_mut();
        let at = answers.iter().position(|(action, _, _)| *action == call.action())?;
        let (_, status, body) = answers.remove(at);
        let host = if call.service == Service::Ec2 { "ec2" } else { "elasticloadbalancing" };
        let request = format!("POST https://{host}.us-east-1.amazonaws.com/");
        Some(Answer::of(call, Ok(Response::new(&request, status, &[], body))))
    }

    /// AWS registers no machine of a call in which one does not run.
    fn check_machines(&self, action: &str, call: &Parameters) -> Result<(), Fault> {
        let (code, name, id) = match action {
            "RegisterTargets" => ("InvalidTarget", "Targets", "Id"),
            "RegisterInstancesWithLoadBalancer" => ("InvalidInstance", "Instances", "InstanceId"),
            _ => return Ok(()),
        };
        let ids: Vec<_> = (1..).map_while(|n| call.get(&format!("{name}.member.{n}.{id}"))).collect();
        let ec2 = self.ec2.borrow();
        let runs = |id: &&str| ec2.machines.iter().any(|one| one.id == **id && one.state == "running");
        match ids.iter().find(|id| !runs(id)) {
            Some(id) => Err(Fault { code: code.to_owned(), error: Error::Unavailable(format!("{id} is not running")) }),
            None => Ok(()),
        }
    }

    fn answer(&self, call: &Call) -> Result<Answer, Fault> {
        let is_write = !call.action().starts_with("Describe");
        if self.dies_after.get().is_some_and(|writes| self.writes.get() >= writes) {
            return Err(Error::Unavailable("the process has ended".to_owned()).into());
        }
        if let Some(left) = self.left.get() {
            let limited = || Error::Unavailable("a limit of the sandbox was met".to_owned());
            self.left.set(Some(left.checked_sub(1).ok_or_else(limited)?));
        }
        self.calls.borrow_mut().push(call.action().to_owned());
        if let Some(answer) = self.prepared(call) {
            return answer;
        }
        let parameters = Parameters(call.form().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        self.check_machines(call.action(), &parameters)?;
        let body = match call.service {
            Service::Ec2 => self.ec2.borrow_mut().answer(call.action(), &parameters)?,
            Service::Elb => self.elb.borrow_mut().answer(call.action(), &parameters)?,
            Service::ElbV2 => self.elb_v2.borrow_mut().answer(call.action(), &parameters)?,
        };
        self.writes.set(self.writes.get() + usize::from(is_write));
        let action = call.action();
        let document = format!("<{action}Response>{body}</{action}Response>");
        Answer::of(call, Ok(Response::new("POST", 200, &[], document)))
    }
}

impl Cloud for FakeAws {
    fn send_all(&self, calls: Vec<Call>) -> Vec<Result<Answer, Fault>> {
        assert!(!calls.is_empty(), "a question without calls");
        calls.iter().map(|call| self.answer(call)).collect()
    }

    fn recall(&self, key: &str) -> Option<Value> {
        self.remembered.borrow().get(key).cloned()
    }

    fn remember(&self, key: &str, value: &Value, _ttl: Duration) {
        self.remembered.borrow_mut().insert(key.to_owned(), value.clone());
    }

    fn forget(&self, key: &str) {
        self.remembered.borrow_mut().remove(key);
    }

    fn left(&self) -> usize {
        self.left.get().unwrap_or(usize::MAX)
    }
}

/// The parameters of one call.
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn need(&self, name: &str) -> String {
        self.get(name).unwrap_or_else(|| panic!("no parameter {name} in {:?}", self.0)).to_owned()
    }

    /// The values of `Name.1` or `Name.member.1`, and so on.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let member = |n: usize| self.get(&format!("{name}.{n}")).or_else(|| self.get(&format!("{name}.member.{n}")));
        (1..).map_while(member).map(str::to_owned).collect()
    }

    /// Keys and values of `Name.member.1.Key` and so on.
    pub(crate) fn pairs(&self, name: &str) -> BTreeMap<String, String> {
        let part = |n: usize, part: &str| {
            let long = self.get(&format!("{name}.member.{n}.{part}"));
            long.or_else(|| self.get(&format!("{name}.{n}.{part}"))).map(str::to_owned)
        };
        (1..).map_while(|n| Some((part(n, "Key")?, part(n, "Value")?))).collect()
    }

    /// The values of one filter of EC2; none where the call does not filter by it.
    pub(crate) fn filter(&self, name: &str) -> Option<Vec<String>> {
        let number = (1..10).find(|n| self.get(&format!("Filter.{n}.Name")) == Some(name))?;
        Some(self.list(&format!("Filter.{number}.Value")))
    }

    /// Whether one of the filter's values is the text, or the call does not filter by it.
    pub(crate) fn passes(&self, filter: &str, text: &str) -> bool {
        self.filter(filter).is_none_or(|values| values.iter().any(|value| value == text))
    }
}

/// The fault of a refused call.
pub(crate) fn refusal(code: &str, message: &str) -> Fault {
    Fault { code: code.to_owned(), error: Error::Invalid(format!("{code}: {message}")) }
}

/// The document of an error, in the form that EC2 has.
pub(crate) fn error_document(code: &str, message: &str) -> String {
    format!("<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>")
}

/// An XML element with elements inside.
pub(crate) fn xml(name: &str, inside: &str) -> String {
    format!("<{name}>{inside}</{name}>")
}

/// An XML element for each entry.
pub(crate) fn items<T>(
    set: &str,
    item: &str,
    entries: impl IntoIterator<Item = T>,
    write: impl Fn(T) -> String,
) -> String {
    xml(set, &entries.into_iter().map(|entry| xml(item, &write(entry))).collect::<String>())
}

/// A Service `default/web` with these ports: protocol, port, node port.
pub(crate) fn service(ports: &[(Protocol, u16, u16)]) -> skysail_guest_sdk::Service {
    let port = |&(protocol, port, node_port): &(Protocol, u16, u16)| ServicePort {
        name: format!("port-{port}"),
        ..ServicePort::new(protocol, port, node_port)
    };
    skysail_guest_sdk::Service {
        ports: ports.iter().map(port).collect(),
        ..skysail_guest_sdk::Service::new("default", "web", "0a1b2c3d-4e5f-6789-abcd-ef0123456789")
    }
}

/// The Service with these annotations, by the last part of their names.
pub(crate) fn annotated(
    mut service: skysail_guest_sdk::Service,
    annotations: &[(&str, &str)],
) -> skysail_guest_sdk::Service {
    let name = |key: &str| format!("service.beta.kubernetes.io/aws-load-balancer-{key}");
    service.annotations.extend(annotations.iter().map(|(key, value)| (name(key), (*value).to_owned())));
    service.annotations.sort_unstable();
    service
}
