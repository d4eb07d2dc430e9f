//! `skysail orphans`: lists the load balancers in the cloud that no Service needs, and deletes
//! those that the command line names.
//!
//! # Flow
//! 1. serve (provider): load the components of the provider file, or of the cluster's Providers,
//!    into their sandboxes.
//! 2. look twice (client, provider): read the Services, then the cloud. A Service may be created,
//!    with its load balancer, between the two reads; the second look finds that Service. So only
//!    load balancers that both looks found are orphans.
//! 3. delete (client, provider): delete the named load balancers, if all of them are orphans.
//!    Before each deletion, read the Services once more. While the cloud is still deleting, ask the
//!    provider again: the list may lack the load balancer before all of it is deleted.
//! 4. print.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail, ensure};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, api::ListParams};
use serde::Serialize;
use skysail_controllers::{
    AskedServices, RetainedKey, RetainedRecords, Wanting, find_orphans, may_want_load_balancers, names::reasons,
    orphan_notice,
};
use skysail_provider::{Call, Code, Error, OwnedLoadBalancer, Provider as _, Service};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{LoggingFormat, OrphansArgs, OutputFormat},
    cluster::{Cluster, list_all},
    commands::{retained, served},
    exit::{MarkExt as _, Reason},
    output,
    providers::Fleet,
    telemetry,
};

/// The longest time until a cloud has deleted one load balancer.
const DELETION_MAX: Duration = Duration::from_mins(15);
/// Bounds of the pauses while the cloud deletes. A pause is as long as the provider asks for, and
/// at least twice as long as the one before.
const DELETION_PAUSE_MIN: Duration = Duration::from_secs(1);
const DELETION_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Largest number of Events that are read: the manager emits one for each orphan.
const EVENTS_MAX: u32 = 500;

/// One row of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Orphan {
    provider: String,
    name: String,
    /// `namespace/name` of the Service for which the load balancer was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_uid: Option<String>,
    /// Whether a Service uses the same load balancer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_use: bool,
    /// Whether it is no orphan but stays because of a deletion policy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retained: bool,
    /// The key of its record.
    #[serde(skip)]
    key: Option<RetainedKey>,
    /// The entry of the provider's inventory.
    #[serde(skip)]
    share: OwnedLoadBalancer,
    /// When the manager first reported the orphan.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    deleted: bool,
}

/// Lists the orphans, and deletes those that the command line names.
///
/// # Errors
/// A file or a flag is invalid, the cluster or a provider does not answer, or a name is not that of
/// an orphan.
pub(crate) fn run(args: OrphansArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(orphans(args))
}

async fn orphans(args: OrphansArgs) -> anyhow::Result<()> {
    let specs = served::specs(args.provider_file.as_deref(), args.provider.as_deref()).or_exit(Reason::Usage)?;
    let cluster = Cluster::of(args.kubeconfig.as_deref()).await.or_exit(Reason::Usage)?;
    let client = cluster.client("orphans").await.or_exit(Reason::Usage)?;
    // serve (provider)
    let fleet = served::fleet(client.clone(), specs, args.provider.as_deref()).await?;
    // look twice (client, provider)
    let (first, _) = look(&client, &fleet, &args).await?;
    let (mut found, services) = look(&client, &fleet, &args).await?;
    found.retain(|orphan| first.contains(orphan));
    let events = events(&client).await;
    for orphan in &mut found {
        orphan.since = since(&events, orphan);
    }
    // delete (provider)
    check_named(&found, &args.delete).or_exit(Reason::Usage)?;
    let mut asked = AskedServices::new(services);
    let mut deleted = Ok(());
    for orphan in found.iter_mut().filter(|orphan| args.delete.contains(&orphan.name)) {
        deleted = delete((&client, &fleet), &args, orphan, &mut asked).await;
        if deleted.is_err() {
            break;
        }
    }
    // print, also what was deleted before a failure
    let (result, beside) = shown(&found, &args.cluster_name, args.output)?;
    output::print(result.as_bytes())?;
    if let Some(sentence) = beside {
        output::say(&sentence);
    }
    deleted
}

/// The orphans, and the Services that the search has asked for.
async fn look(
    client: &kube::Client,
    fleet: &Fleet,
    args: &OrphansArgs,
) -> anyhow::Result<(Vec<Orphan>, Vec<Arc<Service>>)> {
    // The records first: a Service that goes meanwhile is then known by its object.
    let object = retained::config_map(client, &args.records).await.or_exit(Reason::Unreachable)?;
    let records = RetainedRecords::of(object.as_ref());
    let services = may_want_load_balancers(&services(client).await.or_exit(Reason::Unreachable)?);
    // Ctrl-C ends the process.
    let stop = CancellationToken::new();
    let mut orphans = Vec::new();
    for (name, served) in &fleet.served {
        let slot = &served.slot;
        let searched =
            (Wanting { services: &services, records: (name, &records), lists_retained: true }, [].as_slice());
        let found = match find_orphans(&**slot, (&Call::default(), &stop), &args.cluster_name, searched).await {
            // The cloud-config switches the inventory off.
            Err(error) if error.code == Code::Unsupported => Vec::new(),
            Err(error) => bail!("the provider {name} returned {}: {error}", error.code.category()),
            Ok(found) => found,
        };
        orphans.extend(found.into_iter().map(|one| orphan(name, one)));
    }
    Ok((orphans, services))
}

async fn services(client: &kube::Client) -> anyhow::Result<Vec<core::Service>> {
    list_all(&Api::all(client.clone())).await.context("cannot list the Services of all namespaces")
}

fn orphan(provider: &str, found: skysail_controllers::Orphan) -> Orphan {
    let skysail_controllers::Orphan { share, in_use, retained, is_listed: _ } = found;
    let OwnedLoadBalancer { name, service } = share.clone();
    let (service, service_uid) = service.map(|(namespace, name, uid)| (format!("{namespace}/{name}"), uid)).unzip();
    let (key, provider) = (retained.map(|(key, _)| key), provider.to_owned());
    let retained = key.is_some();
    Orphan { provider, name, service, service_uid, in_use, retained, key, share, since: None, deleted: false }
}

/// The manager's Events about orphans. Without permission to list Events the result is empty.
async fn events(client: &kube::Client) -> Vec<core::Event> {
    let api = Api::<core::Event>::namespaced(client.clone(), "default");
    let params = ListParams::default().fields(&format!("reason={}", reasons::ORPHANED_LOAD_BALANCER)).limit(EVENTS_MAX);
    api.list(&params).await.map(|list| list.items).unwrap_or_default()
}

fn since(events: &[core::Event], Orphan { provider, name, .. }: &Orphan) -> Option<String> {
    let notice = orphan_notice(provider, name);
    let about = events.iter().filter(|event| event.message.as_ref().is_some_and(|text| text.starts_with(&notice)));
    about.filter_map(|event| event.first_timestamp.as_ref()).map(|time| time.0).min().map(|time| time.to_string())
}

/// Refuses names that are not orphans: a typing error, or a load balancer that a Service needs.
fn check_named(found: &[Orphan], named: &[String]) -> anyhow::Result<()> {
    for name in named {
        let named = found.iter().filter(|orphan| orphan.name == *name);
        match named.map(|orphan| &orphan.provider).collect::<BTreeSet<_>>().len() {
            // One provider; several entries are parts of the same load balancer.
            1 => {}
            0 => bail!(
                "{name:?} is not an orphan, so nothing was deleted; `skysail orphans` without --delete lists the orphans"
            ),
            _ => {
                bail!("{name:?} is an orphan of several providers, so nothing was deleted; choose one with --provider")
            }
        }
    }
    Ok(())
}

async fn delete(
    (client, fleet): (&kube::Client, &Fleet),
    args: &OrphansArgs,
    orphan: &mut Orphan,
    asked: &mut AskedServices,
) -> anyhow::Result<()> {
    let gone = || format!("the provider {} no longer exports load-balancer-inventory", orphan.provider);
    let slot = &fleet.served.get(&orphan.provider).with_context(gone)?.slot;
    let inventory = slot.load_balancer_inventory().with_context(gone)?;
    let (call, cluster, share) = (Call::default(), &*args.cluster_name, &orphan.share);
    if let Some(key) = &orphan.key {
        forget_retained(client, args, key).await?;
    }
    let failed = |error: Error| anyhow!("cannot delete {:?}: {}: {error}", orphan.name, error.code.category());
    let (end, mut pause) = (Instant::now() + DELETION_MAX, DELETION_PAUSE_MIN);
    loop {
        let present = may_want_load_balancers(&services(client).await.or_exit(Reason::Unreachable)?);
        ensure!(
            !asked.want_meanwhile(&**slot, (&call, cluster), present, share).await.map_err(failed)?,
            "cannot delete {:?}: a Service began to use it; list the orphans again",
            orphan.name
        );
        match inventory.delete(&call, cluster, share).await {
            Ok(()) => break,
            Err(error) if error.code == Code::RetryAfter => {
                let wait = error.retry_after.unwrap_or_default().max(pause).min(DELETION_PAUSE_MAX);
                pause = (2 * wait).min(DELETION_PAUSE_MAX);
                ensure!(
                    Instant::now() + wait < end,
                    "{:?} is not deleted completely after {} min: {error}; look for the rest in the cloud's console",
                    orphan.name,
                    DELETION_MAX.as_secs() / 60
                );
                output::say(&format!("{:?}: {error}; asking again in {} s", orphan.name, wait.as_secs()));
                sleep(wait).await;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    orphan.deleted = true;
    Ok(())
}

/// Removes the record of a retained load balancer before its deletion, so that no Service adopts it
/// meanwhile. If the deletion then fails, the load balancer is an orphan as any other.
async fn forget_retained(client: &kube::Client, args: &OrphansArgs, key: &RetainedKey) -> anyhow::Result<()> {
    let object = retained::config_map(client, &args.records).await.or_exit(Reason::Unreachable)?;
    let records = RetainedRecords::of(object.as_ref());
    let record = records.all().find(|(known, _)| *known == key).map(|(_, record)| record);
    let (Some(object), Some(record)) = (&object, record) else { return Ok(()) };
    ensure!(
        !record.in_use,
        "cannot delete {:?}: the Service {} began to use it; list the orphans again",
        record.name,
        record.service
    );
    retained::forget(client, &args.records, (object, key)).await
}

/// The result, and what standard error says about it. A sentence names the cluster, because a wrong
/// cluster name finds no orphans: in the text, or beside JSON.
fn shown(orphans: &[Orphan], cluster: &str, format: OutputFormat) -> anyhow::Result<(String, Option<String>)> {
    let found = if orphans.is_empty() { "No orphans" } else { "These are the orphans" };
    let sentence =
        format!("{found} of the cluster name {cluster:?}; if the manager has another --cluster-name, give that one.");
    if format == OutputFormat::Json {
        return Ok((output::json(&orphans)?, Some(sentence)));
    }
    if orphans.is_empty() {
        return Ok((sentence + "\n", None));
    }
    let header = ["PROVIDER", "NAME", "SERVICE", "RETAINED", "SINCE", "DELETED"].map(str::to_owned);
    let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let row = |orphan: &Orphan| {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let (provider, name) = (orphan.provider.clone(), orphan.name.clone());
        [provider, name, cell(&orphan.service), yes(orphan.retained), cell(&orphan.since), yes(orphan.deleted)]
    };
    let rows: Vec<[String; 6]> = std::iter::once(header).chain(orphans.iter().map(row)).collect();
    Ok((format!("{}\n{sentence}\n", output::table(&rows).join("\n")), None))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use skysail_provider::OwnedLoadBalancer;

    use super::{Orphan, check_named, shown, since};
    use crate::args::OutputFormat;

    fn orphan(provider: &str, name: &str) -> Orphan {
        Orphan {
            provider: provider.to_owned(),
            name: name.to_owned(),
            service: Some("shop/web".to_owned()),
            service_uid: Some("uid-1".to_owned()),
            in_use: false,
            retained: false,
            key: None,
            share: OwnedLoadBalancer { name: name.to_owned(), service: None },
            since: None,
            deleted: false,
        }
    }

    #[test]
    fn the_list_is_a_table_or_json() {
        let orphans = [
            Orphan { deleted: true, ..orphan("incus", "lb-1") },
            Orphan { service: None, retained: true, ..orphan("sim", "a\x1b[2Jb") },
        ];
        expect![[r#"
            PROVIDER   NAME     SERVICE    RETAINED   SINCE   DELETED
            incus      lb-1     shop/web   no         -       yes
            sim        a [2Jb   -          yes        -       no
            These are the orphans of the cluster name "k8s"; if the manager has another --cluster-name, give that one.
        "#]]
        .assert_eq(&shown(&orphans, "k8s", OutputFormat::Text).unwrap().0);
        let (json, _) = shown(&orphans[..1], "k8s", OutputFormat::Json).unwrap();
        expect![[r#"
            [
              {
                "provider": "incus",
                "name": "lb-1",
                "service": "shop/web",
                "serviceUid": "uid-1",
                "deleted": true
              }
            ]
        "#]]
        .assert_eq(&json);
    }

    /// Regression: the output was "No orphans." for a cluster name that the manager does not have,
    /// and with JSON only "[]".
    #[test]
    fn an_empty_list_says_which_cluster_name_was_asked_for_and_json_says_it_on_standard_error() {
        let sentence =
            "No orphans of the cluster name \"kubernetes\"; if the manager has another --cluster-name, give that one.";
        let text = shown(&[], "kubernetes", OutputFormat::Text).unwrap();
        assert_eq!(text, (format!("{sentence}\n"), None));
        let json = shown(&[], "kubernetes", OutputFormat::Json).unwrap();
        assert_eq!(json, ("[]\n".to_owned(), Some(sentence.to_owned())));
    }

    #[test]
    fn nothing_is_deleted_if_one_of_the_names_is_not_an_orphan() {
        let found = [orphan("a", "one"), orphan("a", "one"), orphan("a", "two"), orphan("b", "two")];
        assert!(check_named(&found, &["one".to_owned()]).is_ok(), "two shares of one load balancer");
        let refusal = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            check_named(&found, &names).unwrap_err().to_string()
        };
        assert!(refusal(&["one", "wanted"]).contains("\"wanted\" is not an orphan"));
        assert!(refusal(&["two"]).contains("several providers"));
    }

    #[test]
    fn since_is_the_time_of_the_first_event_about_the_same_load_balancer() {
        let event = |text: &str, seconds: i64| Event {
            message: Some(text.to_owned()),
            first_timestamp: Some(Time(Timestamp::from_second(seconds).unwrap())),
            ..Event::default()
        };
        let events = [
            event("The provider sim has a load balancer lb-1, made for", 200),
            event("The provider sim has a load balancer lb-1, made for", 100),
            event("The provider sim has a load balancer lb-10, made for", 1),
            event("The provider other has a load balancer lb-1, made for", 2),
        ];
        assert_eq!(since(&events, &orphan("sim", "lb-1")).unwrap(), "1970-01-01T00:01:40Z");
        assert_eq!(since(&events, &orphan("sim", "lb-2")), None);
    }
}
