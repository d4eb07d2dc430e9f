//! `skysail retained`: lists the load balancers that stay in the cloud although their Service is
//! gone, from the records of the manager.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::json;
use skysail_controllers::{
    RetainedKey, RetainedLoadBalancer, RetainedRecords,
    names::{FIELD_MANAGER, RETAINED_CONFIG_MAP},
};

use crate::{
    args::{LoggingFormat, OutputFormat, RecordsArgs, RetainedArgs},
    cluster::Cluster,
    exit::{MarkExt as _, Reason},
    output, telemetry,
};

/// One row of the result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    provider: &'a str,
    uid: &'a str,
    #[serde(flatten)]
    record: &'a RetainedLoadBalancer,
}

/// Lists the records.
///
/// # Errors
/// A flag is invalid, the cluster does not answer, or an entry of the ConfigMap cannot be read.
pub(crate) fn run(args: &RetainedArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log.log, LoggingFormat::Text).or_exit(Reason::Usage)?;
    tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(retained(args))
}

async fn retained(args: &RetainedArgs) -> anyhow::Result<()> {
    let cluster = Cluster::of(args.kubeconfig.as_deref()).await.or_exit(Reason::Usage)?;
    let client = cluster.client("retained").await.or_exit(Reason::Usage)?;
    let object = config_map(&client, &args.records).await.or_exit(Reason::Unreachable)?;
    let records = RetainedRecords::of(object.as_ref());
    output::print(shown(&records, args.output)?.as_bytes())?;
    let unreadable: Vec<&str> = records.unreadable().collect();
    anyhow::ensure!(
        unreadable.is_empty(),
        "entries of the ConfigMap {}/{RETAINED_CONFIG_MAP} that cannot be read: {}; correct or remove them",
        args.records.leader_elect_resource_namespace,
        unreadable.join(", ")
    );
    Ok(())
}

/// The ConfigMap with the records; without one no load balancer was retained yet.
pub(super) async fn config_map(client: &Client, records: &RecordsArgs) -> anyhow::Result<Option<ConfigMap>> {
    let namespace = &records.leader_elect_resource_namespace;
    let read = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(RETAINED_CONFIG_MAP).await;
    read.with_context(|| format!("cannot read the ConfigMap {namespace}/{RETAINED_CONFIG_MAP}"))
}

/// Removes the record of a load balancer that no Service has, unless the ConfigMap has changed
/// since it was read.
pub(super) async fn forget(
    client: &Client,
    records: &RecordsArgs,
    (object, key): (&ConfigMap, &RetainedKey),
) -> anyhow::Result<()> {
    let namespace = &records.leader_elect_resource_namespace;
    let metadata = json!({ "resourceVersion": object.metadata.resource_version, "uid": object.metadata.uid });
    let patch = json!({ "metadata": metadata, "data": { key.to_string(): null } });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let written = api.patch(RETAINED_CONFIG_MAP, &params, &Patch::Merge(&patch)).await;
    written.with_context(|| format!("cannot remove {key} from the ConfigMap {namespace}/{RETAINED_CONFIG_MAP}"))?;
    Ok(())
}

fn shown(records: &RetainedRecords, format: OutputFormat) -> anyhow::Result<String> {
    let rows = records.all().map(|(RetainedKey { provider, uid }, record)| Row { provider, uid, record });
    let rows: Vec<Row<'_>> = rows.collect();
    if format == OutputFormat::Json {
        return output::json(&rows);
    }
    if rows.is_empty() {
        return Ok("No load balancer is retained.\n".to_owned());
    }
    let header = ["PROVIDER", "NAME", "ADDRESSES", "SERVICE", "STATE", "SINCE", "UID"].map(str::to_owned);
    let row = |Row { provider, uid, record }: &Row<'_>| {
        let addresses = if record.addresses.is_empty() { "-".to_owned() } else { record.addresses.join(",") };
        let service = format!("{}/{}", record.namespace, record.service);
        let state = if record.in_use { "in use" } else { "retained" };
        let words = [*provider, &record.name, &addresses, &service, state, &record.since, uid];
        words.map(str::to_owned)
    };
    let rows: Vec<[String; 7]> = std::iter::once(header).chain(rows.iter().map(row)).collect();
    Ok(output::table(&rows).join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use skysail_controllers::RetainedRecords;

    use super::shown;
    use crate::args::OutputFormat;

    #[test]
    fn the_records_are_a_table_or_json() {
        let record = |service: &str, in_use: bool, addresses: &[&str]| {
            let record = json!({
                "namespace": "shop", "madeFor": "web", "service": service, "serviceUid": "u2", "inUse": in_use, "name": "lb-1",
                "addresses": addresses, "since": "2026-01-01T00:00:00Z",
            });
            record.to_string()
        };
        let data = [
            ("sim.u1".to_owned(), record("web", false, &["192.0.2.1", "2001:db8::1"])),
            ("sim.u3".to_owned(), record("next", true, &[])),
        ];
        let records = RetainedRecords::of(Some(&ConfigMap { data: Some(data.into()), ..ConfigMap::default() }));
        expect![[r#"
            PROVIDER   NAME   ADDRESSES               SERVICE     STATE      SINCE                  UID
            sim        lb-1   192.0.2.1,2001:db8::1   shop/web    retained   2026-01-01T00:00:00Z   u1
            sim        lb-1   -                       shop/next   in use     2026-01-01T00:00:00Z   u3
        "#]]
        .assert_eq(&shown(&records, OutputFormat::Text).unwrap());
        let json = shown(&records, OutputFormat::Json).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&rows[0]["uid"], &rows[1]["inUse"], &rows[1]["serviceUid"]),
            (&json!("u1"), &json!(true), &json!("u2"))
        );
        assert_eq!(shown(&RetainedRecords::default(), OutputFormat::Text).unwrap(), "No load balancer is retained.\n");
    }
}
