//! `skysail orphans`: the load balancers in the cloud that no Service wants, listed, and deleted where they are named.
//!
//! # Flow
//! 1. serve (provider): the provider file's components, in their sandboxes.
//! 2. look twice (client, provider): the Services, then the cloud. A Service that came with its load balancer between the two reads of one look is
//!    there at the next one, so only what both found is an orphan.
//! 3. delete (provider): what was named, if all of it is among them.
//! 4. print.

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, api::ListParams};
use prometheus_client::registry::Registry;
use serde::Serialize;
use skysail_controllers::{find_orphans, may_want_load_balancers, names::reasons, orphan_notice};
use skysail_provider::{Call, OwnedLoadBalancer, Provider as _};

use crate::{
    args::{LoggingFormat, OrphansArgs, OutputFormat},
    cluster::Cluster,
    exit::{MarkExt as _, Reason},
    output, provider_file,
    providers::{self, Fleet, Surroundings},
    telemetry,
};

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Orphan {
    provider: String,
    name: String,
    /// `namespace/name` of the Service that it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_uid: Option<String>,
    /// When the manager first told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    deleted: bool,
}

/// Lists, and deletes what was named.
///
/// # Errors
/// A wrong file or flag, no cluster, a provider that cannot answer, or a name that is no orphan's.
pub(crate) fn run(args: OrphansArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(orphans(args))
}

async fn orphans(args: OrphansArgs) -> anyhow::Result<()> {
    let mut specs = provider_file::load(&args.provider_file).or_exit(Reason::Usage)?.providers;
    if let Some(name) = &args.provider {
        specs.retain(|spec| spec.name == *name);
        if specs.is_empty() {
            return Err(anyhow!("{} has no provider {name:?}", args.provider_file.display())).or_exit(Reason::Usage);
        }
    }
    let cluster = Cluster::of(args.kubeconfig.as_deref()).await.or_exit(Reason::Usage)?;
    let client = cluster.client("orphans").or_exit(Reason::Usage)?;
    // serve (provider)
    let surroundings = Surroundings { archive: None, kubernetes: Some(client.clone()) };
    let mut fleet = Fleet::new(providers::services(&mut Registry::default())?).within(surroundings);
    fleet.apply(specs).await.or_exit(Reason::Usage)?;
    fleet.first_releases().await;
    // look twice (client, provider)
    let first = look(&client, &fleet, &args).await?;
    let mut found = look(&client, &fleet, &args).await?;
    found.retain(|orphan| first.contains(orphan));
    let events = events(&client).await;
    for orphan in &mut found {
        orphan.since = since(&events, orphan);
    }
    // delete (provider)
    check_named(&found, &args.delete).or_exit(Reason::Usage)?;
    for orphan in found.iter_mut().filter(|orphan| args.delete.contains(&orphan.name)) {
        delete(&fleet, &args, orphan).await?;
    }
    // print
    output::print(shown(&found, args.output)?.as_bytes())
}

async fn look(client: &kube::Client, fleet: &Fleet, args: &OrphansArgs) -> anyhow::Result<Vec<Orphan>> {
    let services = may_want_load_balancers(&services(client).await.or_exit(Reason::Unreachable)?);
    let mut orphans = Vec::new();
    for (name, served) in &fleet.served {
        let slot = &served.slot;
        if slot.info().is_none() {
            let trouble = slot.status().borrow().trouble().map_or_else(String::new, |trouble| format!(": {trouble}"));
            return Err(anyhow!("the provider {name} does not serve{trouble}")).or_exit(Reason::Refused);
        }
        let found = find_orphans(&**slot, &Call::default(), &args.cluster_name, &services).await;
        let found =
            found.map_err(|error| anyhow!("the provider {name} answered {}: {error}", error.code.category()))?;
        orphans.extend(found.into_iter().map(|one| orphan(name, one)));
    }
    Ok(orphans)
}

async fn services(client: &kube::Client) -> anyhow::Result<Vec<core::Service>> {
    let api = Api::<core::Service>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut services = Vec::new();
    loop {
        let page = api.list(&params).await.context("cannot list the Services of all namespaces")?;
        services.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(services),
        }
    }
}

fn orphan(provider: &str, OwnedLoadBalancer { name, service }: OwnedLoadBalancer) -> Orphan {
    let (service, service_uid) = service.map(|(namespace, name, uid)| (format!("{namespace}/{name}"), uid)).unzip();
    Orphan { provider: provider.to_owned(), name, service, service_uid, since: None, deleted: false }
}

/// The manager's Events about orphans. Who may not read them gets the list without times.
async fn events(client: &kube::Client) -> Vec<core::Event> {
    let api = Api::<core::Event>::namespaced(client.clone(), "default");
    let params = ListParams::default().fields(&format!("reason={}", reasons::ORPHANED_LOAD_BALANCER)).limit(PAGE);
    api.list(&params).await.map(|list| list.items).unwrap_or_default()
}

fn since(events: &[core::Event], Orphan { provider, name, .. }: &Orphan) -> Option<String> {
    let notice = orphan_notice(provider, name);
    let about = events.iter().filter(|event| event.message.as_ref().is_some_and(|text| text.starts_with(&notice)));
    about.filter_map(|event| event.first_timestamp.as_ref()).map(|time| time.0).min().map(|time| time.to_string())
}

/// A name that is none of them may be a slip of the hand, or a load balancer that a Service wants.
fn check_named(found: &[Orphan], named: &[String]) -> anyhow::Result<()> {
    for name in named {
        match found.iter().filter(|orphan| orphan.name == *name).count() {
            1 => {}
            0 => anyhow::bail!(
                "{name:?} is no orphan, so nothing was deleted; `skysail orphans` without --delete lists them"
            ),
            _ => anyhow::bail!(
                "{name:?} is an orphan of several providers, so nothing was deleted; choose one with --provider"
            ),
        }
    }
    Ok(())
}

async fn delete(fleet: &Fleet, args: &OrphansArgs, orphan: &mut Orphan) -> anyhow::Result<()> {
    let slot = fleet.served.get(&orphan.provider).map(|served| &served.slot);
    let inventory = slot.and_then(|slot| slot.load_balancer_inventory());
    let inventory = inventory.with_context(|| format!("the provider {} has no inventory any more", orphan.provider))?;
    let deleted = inventory.delete(&Call::default(), &args.cluster_name, &orphan.name).await;
    deleted.map_err(|error| anyhow!("cannot delete {:?}: {}: {error}", orphan.name, error.code.category()))?;
    orphan.deleted = true;
    Ok(())
}

fn shown(orphans: &[Orphan], format: OutputFormat) -> anyhow::Result<String> {
    if format == OutputFormat::Json {
        return Ok(serde_json::to_string_pretty(orphans).context("cannot encode the answer")? + "\n");
    }
    if orphans.is_empty() {
        return Ok("No orphans.\n".to_owned());
    }
    let header = ["PROVIDER", "NAME", "SERVICE", "SINCE", "DELETED"].map(str::to_owned);
    let cell = |text: &Option<String>| text.clone().map_or_else(|| "-".to_owned(), |text| plain(&text));
    let row = |orphan: &Orphan| {
        let deleted = if orphan.deleted { "yes" } else { "no" };
        [orphan.provider.clone(), plain(&orphan.name), cell(&orphan.service), cell(&orphan.since), deleted.to_owned()]
    };
    let rows: Vec<[String; 5]> = std::iter::once(header).chain(orphans.iter().map(row)).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    };
    Ok(rows.iter().map(line).collect())
}

/// A cloud's words on a terminal: nothing in them moves the cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use super::{Orphan, check_named, shown, since};
    use crate::args::OutputFormat;

    fn orphan(provider: &str, name: &str) -> Orphan {
        Orphan {
            provider: provider.to_owned(),
            name: name.to_owned(),
            service: Some("shop/web".to_owned()),
            service_uid: Some("uid-1".to_owned()),
            since: None,
            deleted: false,
        }
    }

    #[test]
    fn the_list_is_a_table_or_json() {
        let orphans = [
            Orphan { deleted: true, ..orphan("incus", "lb-1") },
            Orphan { service: None, ..orphan("sim", "a\x1b[2Jb") },
        ];
        expect![[r#"
            PROVIDER   NAME     SERVICE    SINCE   DELETED
            incus      lb-1     shop/web   -       yes
            sim        a?[2Jb   -          -       no
        "#]]
        .assert_eq(&shown(&orphans, OutputFormat::Text).unwrap());
        let json = shown(&orphans[..1], OutputFormat::Json).unwrap();
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
        assert_eq!(shown(&[], OutputFormat::Json).unwrap(), "[]\n");
    }

    #[test]
    fn what_is_no_orphan_is_not_deleted_and_neither_is_the_rest() {
        let found = [orphan("a", "one"), orphan("a", "two"), orphan("b", "two")];
        assert!(check_named(&found, &["one".to_owned()]).is_ok());
        let refusal = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            check_named(&found, &names).unwrap_err().to_string()
        };
        assert!(refusal(&["one", "wanted"]).contains("\"wanted\" is no orphan"));
        assert!(refusal(&["two"]).contains("several providers"));
    }

    #[test]
    fn since_is_the_first_time_that_the_manager_told_of_this_very_one() {
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
