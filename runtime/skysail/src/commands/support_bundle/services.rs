//! What a manager says about the Services whose load balancer is not settled: the page of `skysail
//! explain service`.

use std::time::Duration;

use anyhow::anyhow;
use kube::{Client, api::DynamicObject};
use serde_json::Value;
use tokio::time::timeout;

use super::{archive::Bundle, redact::Redaction};
use crate::{args::ObjectPath, commands::explain, output};

/// Most Services about which the manager is asked, and most of them whose page is kept: one fault
/// shows in many Services in the same way.
const ASKED_MAX: usize = 1_000;
const KEPT_MAX: usize = 100;
/// How long all answers may take.
const WITHIN: Duration = Duration::from_mins(2);
/// Folder of the pages.
const FOLDER: &str = "manager/services";

/// The Services to ask about: those first whose object shows that something is left to do.
pub(super) fn paths(services: &[DynamicObject]) -> Vec<ObjectPath> {
    let path = |object: &DynamicObject| {
        let (namespace, name) = (object.metadata.namespace.clone()?, object.metadata.name.clone()?);
        Some(ObjectPath { namespace, name })
    };
    let (settled, open): (Vec<_>, Vec<_>) = services.iter().partition(|object| looks_settled(object));
    open.into_iter().chain(settled).filter_map(path).collect()
}

fn looks_settled(object: &DynamicObject) -> bool {
    let wants = object.data.pointer("/spec/type").is_some_and(|kind| kind == "LoadBalancer");
    let ingress = object.data.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    wants && ingress.is_some_and(|all| !all.is_empty()) && object.metadata.deletion_timestamp.is_none()
}

/// Adds the pages of the Services that are not settled.
pub(super) async fn add(
    (client, server): (&Client, &str),
    redaction: &Redaction,
    paths: &[ObjectPath],
    bundle: &mut Bundle<'_>,
) {
    output::say(&format!("reading {server}/services"));
    if paths.len() > ASKED_MAX {
        let first = anyhow!("the manager is asked about the first {ASKED_MAX} of {} Services", paths.len());
        bundle.add(FOLDER, Err(first));
    }
    let asked = paths.iter().take(ASKED_MAX);
    if timeout(WITHIN, pages((client, server), redaction, asked, bundle)).await.is_err() {
        let late = anyhow!("the manager did not answer about all Services within {} s", WITHIN.as_secs());
        bundle.add(FOLDER, Err(late));
    }
}

async fn pages(
    (client, server): (&Client, &str),
    redaction: &Redaction,
    paths: impl Iterator<Item = &ObjectPath>,
    bundle: &mut Bundle<'_>,
) {
    let mut kept = 0;
    for path in paths {
        let page = match explain::unsettled(client, server, path).await {
            Ok(None) => continue,
            Ok(Some(page)) => redaction.text(&page),
            // The next answer would be the same.
            Err(error) => return bundle.add(FOLDER, Err(error)),
        };
        if kept == KEPT_MAX {
            let more = anyhow!("more than {KEPT_MAX} Services are not settled, and the others are left out");
            return bundle.add(FOLDER, Err(more));
        }
        kept += 1;
        let lines = page.lines().count();
        let ObjectPath { namespace, name } = path;
        bundle.add(&format!("{FOLDER}/{namespace}/{name}.txt"), Ok((page, format!("lines: {lines}"))));
    }
}
