//! `skysail explain service`: asks a manager about one Service.
//!
//! # Flow
//! 1. read (client): `/services/NAMESPACE/NAME` of the manager.
//! 2. print.

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Client;

use super::page;
use crate::{
    args::{DocumentFormat, ExplainServiceArgs, LoggingFormat, ObjectPath},
    commands::{manager_port, run::ServiceDocument},
    exit::{MarkExt as _, Reason},
    output, telemetry,
};

/// Largest answer of a manager, in bytes: one Service with three calls of 32 requests is below 100
/// KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The rule that permits to get the path of each Service.
const RULE: &str = "'/services/*'";

/// Asks the manager and prints its explanation.
///
/// # Errors
/// A flag is invalid, the manager does not answer or is not the leader, or there is no such
/// Service.
pub(super) fn run(args: &ExplainServiceArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(explain(args))
}

async fn explain(args: &ExplainServiceArgs) -> anyhow::Result<()> {
    let Some(server) = &args.manager.server else {
        let text = "skysail explain service asks a manager, and no manager is named; name its HTTPS port with --server https://HOST:10258, or forward the port (`kubectl -n skysail-system port-forward deploy/skysail 10258`)";
        return Err(anyhow!(text)).or_exit(Reason::Usage);
    };
    // read (client)
    let client = manager_port::client(server, &args.manager, "explain").await.or_exit(Reason::Usage)?;
    let document = asked(&client, &manager_port::shown(server), &args.service).await?;
    // print
    let text = match args.output {
        DocumentFormat::Text => page::of(&document),
        DocumentFormat::Json => output::json(&document)?,
        DocumentFormat::Yaml => output::yaml(&document)?,
    };
    output::print(text.as_bytes())
}

async fn asked(client: &Client, server: &str, object: &ObjectPath) -> anyhow::Result<ServiceDocument> {
    let path = path_of(object);
    understood(answered(client, server, &path).await?, server, &path)
}

/// The page about a Service that is not settled; none about another one, and about one that the
/// manager does not know.
///
/// # Errors
/// The manager does not answer or is not the leader.
pub(in crate::commands) async fn unsettled(
    client: &Client,
    server: &str,
    object: &ObjectPath,
) -> anyhow::Result<Option<String>> {
    let path = path_of(object);
    let answer = answered(client, server, &path).await?;
    if answer.0 == StatusCode::NOT_FOUND && is_about_a_service(&answer.1) {
        return Ok(None);
    }
    let document = understood(answer, server, &path)?;
    Ok((!page::is_settled(&document.explanation)).then(|| page::of(&document)))
}

fn path_of(ObjectPath { namespace, name }: &ObjectPath) -> String {
    format!("/services/{namespace}/{name}")
}

async fn answered(client: &Client, server: &str, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    manager_port::get(client, server, path, ANSWER_BYTES_MAX).await.or_exit(Reason::Unreachable)
}

fn understood(answer: (StatusCode, Bytes), server: &str, path: &str) -> anyhow::Result<ServiceDocument> {
    match refused(&answer, server) {
        Some(refused) => Err(refused),
        None => manager_port::understood(answer, server, &manager_port::Path { path, rule: RULE }),
    }
}

/// The answers that only this path has.
fn refused((status, body): &(StatusCode, Bytes), server: &str) -> Option<anyhow::Error> {
    let said = manager_port::message_of(body)?;
    match *status {
        StatusCode::NOT_FOUND if is_about_a_service(body) => {
            let error = Err::<(), _>(anyhow!(
                "{said}; check the name and the namespace: kubectl get services --all-namespaces"
            ));
            error.or_exit(Reason::Usage).err()
        }
        StatusCode::SERVICE_UNAVAILABLE => Some(anyhow!("the manager at {server} does not know: {said}")),
        _ => None,
    }
}

/// Whether a manager says that there is no such Service, and not an API server that there is no
/// such path.
fn is_about_a_service(body: &[u8]) -> bool {
    let details = serde_json::from_slice::<Status>(body).ok().and_then(|status| status.details);
    details.and_then(|details| details.kind).as_deref() == Some("services")
}

#[cfg(test)]
mod tests;
