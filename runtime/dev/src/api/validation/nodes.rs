//! Rules of Nodes: fields that may be set once, and lists without duplicates.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::errors::Cause;
use crate::api::object::{list, text};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(crate) fn validate(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(old) = old {
        for (path, field) in [("/spec/providerID", "providerID"), ("/spec/podCIDR", "podCIDRs")] {
            let before = text(old, path);
            if !before.is_empty() && before != text(new, path) {
                let detail = format!("node updates may not change {field} except from \"\" to valid");
                causes.push(Cause::forbidden(format!("spec.{field}"), &detail));
            }
        }
    }
    taints(new, &mut causes);
    let mut seen = BTreeSet::new();
    for (index, address) in list(new, "/status/addresses").iter().enumerate() {
        if !seen.insert((text(address, "/type"), text(address, "/address"))) {
            causes.push(Cause::duplicate(format!("status.addresses[{index}]"), address));
        }
    }
    causes
}

fn taints(new: &Value, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, taint) in list(new, "/spec/taints").iter().enumerate() {
        let at = format!("metadata.taints[{index}]");
        let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
        if !super::is_qualified_name(key) {
            causes.push(Cause::invalid(format!("{at}.key"), &Value::from(key), super::NAME_PART));
        }
        if !super::is_label_value(text(taint, "/value")) {
            causes.push(Cause::invalid(format!("{at}.value"), &Value::from(text(taint, "/value")), super::LABEL_VALUE));
        }
        if effect.is_empty() {
            causes.push(Cause::required(format!("{at}.effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            causes.push(Cause::unsupported(format!("{at}.effect"), &Value::from(effect), &EFFECTS));
        }
        if !seen.insert((key, effect)) {
            causes.push(Cause::duplicate(at, taint));
        }
    }
}
