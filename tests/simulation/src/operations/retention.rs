//! Load balancers that outlive their Service: people keep them, ask for them, hand them on, and let
//! single deletions through the operator's budget.

use serde_json::{Value, json};
use skysail_controllers::names::{
    ADOPT_LOAD_BALANCER_ANNOTATION, ALLOW_DELETION_ANNOTATION, DELETION_POLICY_ANNOTATION, LOAD_BALANCER_FINALIZER,
};
use tokio::time::Instant;

use super::{Later, MARK, OTHERS_FINALIZER, People};
use crate::{chance::Chance, referee::text, replica::CLASS};

/// A step of a load balancer's way from one Service to another.
pub(super) enum HandOn {
    /// The Service of this name wants no load balancer of its provider any more.
    LetGo(String, LetGo),
    /// A Service of this name and class asks for the load balancer, with this deletion policy.
    Ask { uid: String, name: String, class: Value, policy: Option<&'static str> },
    /// Somebody brings the first Service back from a backup, as it was when it had the load
    /// balancer, but with the policy `Delete`.
    Restore { name: String, class: Value },
    /// The first Service is deleted. A new one of its name may follow.
    Delete { name: String, again: bool },
}

/// How a Service lets go of its load balancer.
#[derive(Clone, Copy, Debug)]
pub(super) enum LetGo {
    /// The type of the Service becomes `ClusterIP`.
    Type,
    /// The Service goes to the other provider.
    Class,
    /// The Service is deleted.
    Deletion,
}

const WAYS: [(u32, LetGo); 3] = [(3, LetGo::Type), (2, LetGo::Class), (2, LetGo::Deletion)];

/// What comes back of the first Service.
#[derive(Clone, Copy, Debug)]
enum Return {
    Backup,
    Name,
    Nothing,
}

const RETURNS: [(u32, Return); 3] = [(4, Return::Backup), (2, Return::Name), (1, Return::Nothing)];

impl People {
    /// Creates a Service with a deletion policy, which does not change as long as the Service
    /// exists. Some ask for the load balancer of another Service, which may be retained, in use, or
    /// the one of a Service that was never deleted.
    pub(crate) async fn keep_or_ask(&mut self, chance: &mut Chance) {
        let name = format!("s{}", chance.number(0..=self.names_max));
        let policy = chance.pick(&["Retain", "Retain", "keep", "Delete"]).copied().unwrap_or_default();
        let mut annotations = json!({ DELETION_POLICY_ANNOTATION: policy });
        let records = self.referee.records();
        let asked: Vec<String> = match chance.number(0..=9) {
            0..=5 => records.all().map(|(key, _)| key.uid.clone()).collect(),
            6 => {
                let services = self.referee.objects("/api/v1/namespaces/default/services");
                services.iter().map(|service| text(service, "/metadata/uid").to_owned()).collect()
            }
            _ => Vec::new(),
        };
        if let (Some(uid), Some(all)) = (chance.pick(&asked), annotations.as_object_mut()) {
            all.insert(ADOPT_LOAD_BALANCER_ANNOTATION.to_owned(), json!(uid));
        }
        let class = if chance.once_in(0.7) { Value::Null } else { json!(CLASS) };
        let ports = json!([{ "name": "p", "port": chance.number(80..=90) }]);
        let spec = json!({ "type": "LoadBalancer", "ports": ports, "loadBalancerClass": class });
        self.put_service(json!({ "name": name, "annotations": annotations }), spec).await;
    }

    /// A Service whose load balancer outlives it lets go of it, another Service asks for it, and
    /// the first one comes back and goes for good: all within about two minutes.
    pub(crate) async fn begin_to_hand_on(&mut self, chance: &mut Chance) {
        let name = format!("s{}", chance.number(0..=self.names_max));
        let class = if chance.once_in(0.7) { Value::Null } else { json!(CLASS) };
        let mut metadata = json!({ "name": name, "annotations": { DELETION_POLICY_ANNOTATION: "Retain" } });
        if let Some(all) = metadata.as_object_mut().filter(|_| chance.once_in(0.3)) {
            all.insert("finalizers".to_owned(), json!([OTHERS_FINALIZER]));
            all.insert("labels".to_owned(), json!({ MARK: "yes" }));
        }
        let ports = json!([{ "name": "p", "port": chance.number(80..=90) }]);
        self.put_service(metadata, json!({ "type": "LoadBalancer", "ports": ports, "loadBalancerClass": class })).await;
        // The name may have been taken.
        let Some(object) = self.service(&name).filter(keeps_its_own) else { return };
        let class = object.pointer("/spec/loadBalancerClass").cloned().unwrap_or_default();
        let uid = text(&object, "/metadata/uid").to_owned();
        let mut at = Instant::now() + chance.milliseconds(5_000..=30_000);
        let way = chance.weighted(&WAYS).unwrap_or(LetGo::Type);
        self.begun.push((at, Later::HandOn(HandOn::LetGo(name.clone(), way))));
        at += chance.milliseconds(2_000..=20_000);
        let policy = chance.pick(&[None, Some("Delete"), Some("Retain")]).copied().flatten();
        let next = format!("s{}", chance.number(0..=self.names_max));
        let ask = HandOn::Ask { uid, name: next, class: class.clone(), policy };
        self.begun.push((at, Later::HandOn(ask)));
        at += chance.milliseconds(2_000..=30_000);
        let comes_back = chance.weighted(&RETURNS).unwrap_or(Return::Nothing);
        if matches!(comes_back, Return::Backup) {
            self.begun.push((at, Later::HandOn(HandOn::Restore { name: name.clone(), class })));
            at += chance.milliseconds(1_000..=30_000);
        }
        let again = matches!(comes_back, Return::Name);
        self.begun.push((at, Later::HandOn(HandOn::Delete { name, again })));
    }

    /// See [`Self::begin_to_hand_on`].
    pub(super) async fn hand_on(&mut self, step: HandOn) {
        match step {
            HandOn::LetGo(name, way) => self.let_go(&name, way).await,
            HandOn::Ask { uid, name, class, policy } => {
                let annotations = json!({ ADOPT_LOAD_BALANCER_ANNOTATION: uid, DELETION_POLICY_ANNOTATION: policy });
                let metadata = json!({ "name": name, "annotations": without_nulls(annotations) });
                self.put_service(metadata, load_balancer(class)).await;
            }
            HandOn::Restore { name, class } => self.restore(&name, class).await,
            HandOn::Delete { name, again } => {
                if self.service(&name).is_some() {
                    self.delete_service(&name, true).await;
                }
                if again {
                    self.put_service(json!({ "name": name }), load_balancer(Value::Null)).await;
                }
            }
        }
    }

    async fn let_go(&mut self, name: &str, way: LetGo) {
        let Some(object) = self.service(name) else { return };
        let spec = match way {
            LetGo::Type => json!({ "type": "ClusterIP", "loadBalancerClass": null }),
            // The class can only change together with the type.
            LetGo::Class => json!({ "type": "NodePort", "loadBalancerClass": null }),
            LetGo::Deletion => return self.delete_service(name, false).await,
        };
        self.patch_service(name, json!({ "spec": spec })).await;
        if matches!(way, LetGo::Class) {
            let other = if text(&object, "/spec/loadBalancerClass").is_empty() { json!(CLASS) } else { Value::Null };
            self.patch_service(name, json!({ "spec": load_balancer(other) })).await;
        }
    }

    /// As `kubectl replace` does with a file that has the whole object: our finalizer comes back
    /// with the object.
    async fn restore(&mut self, name: &str, class: Value) {
        let Some(object) = self.service(name) else { return };
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let mut finalizers: Vec<Value> = finalizers.into_iter().flatten().cloned().collect();
        if !finalizers.iter().any(|one| one == LOAD_BALANCER_FINALIZER) {
            finalizers.push(json!(LOAD_BALANCER_FINALIZER));
        }
        let metadata = json!({ "annotations": { DELETION_POLICY_ANNOTATION: "Delete" }, "finalizers": finalizers });
        self.patch_service(name, json!({ "metadata": metadata, "spec": load_balancer(class) })).await;
    }

    /// Lets the deletions of a Service that waits for one through the operator's budget.
    pub(crate) async fn let_some_deletion_through(&mut self, chance: &mut Chance) {
        let services = self.referee.objects("/api/v1/namespaces/default/services");
        let is_going = |object: &&Value| object.pointer("/metadata/deletionTimestamp").is_some();
        let going: Vec<&Value> = services.iter().filter(is_going).collect();
        let Some(object) = chance.pick(&going) else { return };
        self.referee.lets_through(text(object, "/metadata/uid"));
        let patch = json!({ "metadata": { "annotations": { ALLOW_DELETION_ANNOTATION: "true" } } });
        self.patch_service(text(object, "/metadata/name"), patch).await;
    }

    fn service(&self, name: &str) -> Option<Value> {
        self.referee.object(&format!("/api/v1/namespaces/default/services/{name}"))
    }
}

fn load_balancer(class: Value) -> Value {
    json!({ "type": "LoadBalancer", "ports": [{ "name": "p", "port": 80 }], "loadBalancerClass": class })
}

fn without_nulls(mut object: Value) -> Value {
    if let Some(all) = object.as_object_mut() {
        all.retain(|_, value| !value.is_null());
    }
    object
}

/// Whether the Service has, or is to get, a load balancer of its own that stays when the Service
/// lets go of it.
fn keeps_its_own(object: &Value) -> bool {
    let annotation = |name: &str| object.pointer("/metadata/annotations").and_then(|all| all.get(name));
    let is_retained = annotation(DELETION_POLICY_ANNOTATION).is_some_and(|policy| policy == "Retain");
    is_retained
        && annotation(ADOPT_LOAD_BALANCER_ANNOTATION).is_none()
        && text(object, "/spec/type") == "LoadBalancer"
        && object.pointer("/metadata/deletionTimestamp").is_none()
}
