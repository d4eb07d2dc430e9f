//! Interfaces `zones`, `clusters` and `node-legacy` of the package `skysail:legacy`.

use super::{
    Call, Clusters, Guest, Interface, NodeLegacy, Result, SandboxedProvider, Zone, Zones, absent, async_trait, convert,
    json,
};
use crate::bindings::exports::skysail::legacy::{clusters, node_legacy, zones};

impl SandboxedProvider {
    fn zone_indices(&self) -> Result<&zones::GuestIndices> {
        self.release.exports().zones.as_ref().ok_or_else(|| absent(Interface::Zones))
    }

    fn cluster_indices(&self) -> Result<&clusters::GuestIndices> {
        self.release.exports().clusters.as_ref().ok_or_else(|| absent(Interface::Clusters))
    }

    fn legacy_indices(&self) -> Result<&node_legacy::GuestIndices> {
        self.release.exports().node_legacy.as_ref().ok_or_else(|| absent(Interface::NodeLegacy))
    }
}

#[async_trait]
impl Zones for SandboxedProvider {
    async fn current(&self, call: &Call) -> Result<Zone> {
        let indices = self.zone_indices()?;
        self.run(
            call,
            ("zones.current", &|| json!({})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_current(store).await })
            },
            |zone| convert::result(zone, convert::zone),
        )
        .await
    }

    async fn by_provider_id(&self, call: &Call, provider_id: &str) -> Result<Zone> {
        let indices = self.zone_indices()?;
        self.run(
            call,
            ("zones.by-provider-id", &|| json!({"providerId": provider_id})),
            |Guest { store, instance, env: _ }| {
                Box::pin(
                    async move { indices.load(&mut *store, instance)?.call_by_provider_id(store, provider_id).await },
                )
            },
            |zone| convert::result(zone, convert::zone),
        )
        .await
    }

    async fn by_node_name(&self, call: &Call, node: &str) -> Result<Zone> {
        let indices = self.zone_indices()?;
        self.run(
            call,
            ("zones.by-node-name", &|| json!({"node": node})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_by_node_name(store, node).await })
            },
            |zone| convert::result(zone, convert::zone),
        )
        .await
    }
}

#[async_trait]
impl Clusters for SandboxedProvider {
    async fn list(&self, call: &Call) -> Result<Vec<String>> {
        let indices = self.cluster_indices()?;
        self.run(
            call,
            ("clusters.list", &|| json!({})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_list(store).await })
            },
            |list| convert::result(list, convert::cluster_names),
        )
        .await
    }

    async fn master(&self, call: &Call, cluster: &str) -> Result<String> {
        let indices = self.cluster_indices()?;
        self.run(
            call,
            ("clusters.master", &|| json!({"cluster": cluster})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move { indices.load(&mut *store, instance)?.call_master(store, cluster).await })
            },
            |master| convert::result(master, |master| convert::short("the master's address", master)),
        )
        .await
    }
}

#[async_trait]
impl NodeLegacy for SandboxedProvider {
    async fn add_ssh_key_to_all_instances(&self, call: &Call, user: &str, key: &[u8]) -> Result<()> {
        let indices = self.legacy_indices()?;
        self.run(
            call,
            (
                "node-legacy.add-ssh-key-to-all-instances",
                &|| json!({"user": user, "key": String::from_utf8_lossy(key)}),
            ),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move {
                    indices.load(&mut *store, instance)?.call_add_ssh_key_to_all_instances(store, user, key).await
                })
            },
            |added| convert::result(added, Ok),
        )
        .await
    }

    async fn current_node_name(&self, call: &Call, hostname: &str) -> Result<String> {
        let indices = self.legacy_indices()?;
        self.run(
            call,
            ("node-legacy.current-node-name", &|| json!({"hostname": hostname})),
            |Guest { store, instance, env: _ }| {
                Box::pin(
                    async move { indices.load(&mut *store, instance)?.call_current_node_name(store, hostname).await },
                )
            },
            |name| convert::result(name, |name| convert::short("the node's name", name)),
        )
        .await
    }

    async fn scrub_dns(
        &self,
        call: &Call,
        nameservers: &[String],
        searches: &[String],
    ) -> Result<(Vec<String>, Vec<String>)> {
        let indices = self.legacy_indices()?;
        self.run(
            call,
            ("node-legacy.scrub-dns", &|| json!({"nameservers": nameservers, "searches": searches})),
            |Guest { store, instance, env: _ }| {
                Box::pin(async move {
                    indices.load(&mut *store, instance)?.call_scrub_dns(store, nameservers, searches).await
                })
            },
            |(nameservers, searches)| {
                Ok((convert::texts("nameservers", nameservers)?, convert::texts("searches", searches)?))
            },
        )
        .await
    }
}
