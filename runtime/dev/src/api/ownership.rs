//! Field ownership: `metadata.managedFields`, the owner of each field after each write.
//!
//! An entry belongs to a manager, an operation (`Apply` or `Update`), a version and a subresource,
//! and holds a set of fields. A plain write becomes the owner of the fields that it changes;
//! server-side apply (`patch/apply.rs`) checks for conflicts first.

pub(crate) mod fields;
pub(crate) mod types;

use serde_json::{Value, json};

use self::fields::FieldSet;
use self::types::{Changes, Type};
use super::clock::Clock;
use super::object::{self, list, text};
use super::state::Call;
use super::write::Ownership;

/// All entries of one object.
pub(crate) type Managers = Vec<Manager>;

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: &'static str,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

impl Manager {
    /// The empty entry of the writer of `call`.
    pub(crate) fn of_call(call: &Call, operation: &'static str, clock: &Clock) -> Self {
        Self {
            name: call.manager.clone(),
            operation,
            api_version: call.kind.api_version(),
            subresource: call.target.subresource.clone(),
            time: clock.stamp().as_str().unwrap_or_default().to_owned(),
            fields: FieldSet::default(),
        }
    }

    /// Whether both are entries of one writer.
    pub(crate) fn is_same_writer(&self, other: &Self) -> bool {
        (&self.name, self.operation, &self.api_version, &self.subresource)
            == (&other.name, other.operation, &other.api_version, &other.subresource)
    }

    fn parse(entry: &Value) -> Option<Self> {
        Some(Self {
            name: text(entry, "/manager").to_owned(),
            operation: match text(entry, "/operation") {
                "Apply" => "Apply",
                "Update" => "Update",
                _ => return None,
            },
            api_version: text(entry, "/apiVersion").to_owned(),
            subresource: text(entry, "/subresource").to_owned(),
            time: text(entry, "/time").to_owned(),
            fields: FieldSet::parse(entry.get("fieldsV1")?),
        })
    }

    fn to_value(&self) -> Value {
        let mut entry = json!({
            "manager": self.name, "operation": self.operation, "apiVersion": self.api_version, "time": self.time,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_value(),
        });
        if !self.subresource.is_empty() {
            object::set(&mut entry, "/subresource", self.subresource.clone());
        }
        entry
    }
}

/// The entries of an object.
pub(crate) fn managers_of(object: &Value) -> Managers {
    list(object, "/metadata/managedFields").iter().filter_map(Manager::parse).collect()
}

/// Records the write of `new` over `old` in `new`'s entries.
pub(crate) fn follow_write(call: &Call, old: Option<&Value>, new: &mut Value, ownership: &Ownership, clock: &Clock) {
    let managers = match ownership {
        Ownership::Applied(managers) => managers.clone(),
        Ownership::Update => after_update(call, old, new, clock),
    };
    write_managers(new, managers);
}

fn after_update(call: &Call, old: Option<&Value>, new: &Value, clock: &Clock) -> Managers {
    let given = list(new, "/metadata/managedFields");
    let reset = given.len() == 1 && given.first() == Some(&json!({}));
    let mut managers = managers_of(new);
    if managers.is_empty() && !reset {
        managers = old.map(managers_of).unwrap_or_default();
    }
    let empty = json!({"metadata": {}, "spec": {}, "status": {}});
    let empty = if call.kind.custom.is_some() { json!({"metadata": {}}) } else { empty };
    let changes = changes(call, old.unwrap_or(&empty), new);
    let mut writer = Manager::of_call(call, "Update", clock);
    let gained = changes.added.union(&changes.modified);
    for other in managers.iter_mut().filter(|m| !m.is_same_writer(&writer)) {
        other.fields = other.fields.difference(&gained).difference(&changes.removed);
    }
    match managers.iter_mut().find(|m| m.is_same_writer(&writer)) {
        Some(found) => {
            let fields = found.fields.union(&gained).difference(&changes.removed);
            if fields != found.fields {
                found.fields = fields;
                found.time = writer.time;
            }
        }
        None => {
            writer.fields = gained;
            managers.push(writer);
        }
    }
    managers
}

/// The fields that a write changes, without those that have no owner and those that this path
/// cannot write.
pub(crate) fn changes(call: &Call, old: &Value, new: &Value) -> Changes {
    let mut changes = Changes::default();
    types::compare(&Type::root(&call.kind), old, new, &mut changes);
    for set in [&mut changes.added, &mut changes.modified, &mut changes.removed] {
        strip(call, set);
    }
    changes
}

/// The fields that a configuration sets, without those that have no owner and those that this path
/// cannot write.
pub(crate) fn fields_of(call: &Call, configuration: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    types::collect(&Type::root(&call.kind), configuration, &mut set);
    strip(call, &mut set);
    set
}

fn strip(call: &Call, set: &mut FieldSet) {
    set.remove(&["f:apiVersion"]);
    set.remove(&["f:kind"]);
    set.forget(&["f:metadata"]);
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "selfLink",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        set.remove(&["f:metadata", &format!("f:{field}")]);
    }
    match call.target.subresource.as_str() {
        "" if call.kind.status => set.remove(&["f:status"]),
        "status" => set.remove(&["f:spec"]),
        _ => {}
    }
    if call.target.subresource == "status" && call.kind.custom.is_some() {
        set.remove(&["f:metadata"]);
    }
}

fn write_managers(object: &mut Value, mut managers: Managers) {
    managers.retain(|m| !m.fields.is_empty());
    managers.sort_by(|a, b| (a.operation, &a.time, &a.name).cmp(&(b.operation, &b.time, &b.name)));
    if managers.is_empty() {
        object::remove(object, "/metadata/managedFields");
        return;
    }
    let entries: Vec<Value> = managers.iter().map(Manager::to_value).collect();
    object::set(object, "/metadata/managedFields", entries);
}

/// Whether a write would change nothing.
pub(crate) fn is_same(old: &Value, new: &Value) -> bool {
    // The time of an entry changes only with its fields, so a comparison of everything suffices.
    old == new
}
