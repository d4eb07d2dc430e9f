//! The table of served resources: names, scope, verbs, and how each kind is decoded.
//!
//! Built-in kinds are decoded through k8s-openapi's types, which drops unknown fields and refuses
//! wrong types as the API server does; custom resources are added and removed with their
//! definitions.

use std::sync::Arc;

use k8s_openapi::api::{apps, coordination, core, discovery, events, rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes and re-encodes an object through its typed form.
pub(crate) type Codec = fn(&Value) -> Result<Value, serde_json::Error>;

/// One served resource.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// Whether the kind has a `status` subresource.
    pub(crate) status: bool,
    /// The storage key of the kind; two views of one kind share it.
    pub(crate) storage: Arc<str>,
    /// `None` for custom resources.
    pub(crate) codec: Option<Codec>,
    /// The version of the definition that serves this custom resource; `None` for built-in kinds.
    pub(crate) custom: Option<Arc<Value>>,
}

impl Kind {
    /// `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `leases.coordination.k8s.io`; core resources have no suffix.
    pub(crate) fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether a PUT of an absent object creates it.
    pub(crate) fn allow_create_on_update(&self) -> bool {
        matches!(&*self.storage, "events" | "leases" | "endpoints" | "services")
            || self.group == "rbac.authorization.k8s.io" && self.custom.is_none()
    }

    /// Whether a PUT without resourceVersion overwrites.
    pub(crate) fn allow_unconditional_update(&self) -> bool {
        self.custom.is_none() && !matches!(&*self.storage, "leases" | "customresourcedefinitions")
    }

    /// Whether `metadata.generation` counts changes of the desired state.
    pub(crate) fn has_generation(&self) -> bool {
        self.custom.is_some()
            || matches!(&*self.storage, "deployments" | "customresourcedefinitions" | "endpointslices" | "pods")
    }

    /// Whether a deletion answers with the object instead of a `Status`.
    pub(crate) fn returns_deleted_object(&self) -> bool {
        matches!(&*self.storage, "services" | "pods" | "serviceaccounts")
    }
}

fn typed<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(T::deserialize(value)?)
}

struct Row {
    gv: (&'static str, &'static str),
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    storage: &'static str,
    codec: Codec,
}

const CORE: (&str, &str) = ("", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");

impl Row {
    const fn new(gv: (&'static str, &'static str), kind: &'static str, plural: &'static str, codec: Codec) -> Self {
        Self { gv, kind, plural, short: &[], categories: &[], namespaced: true, status: false, storage: plural, codec }
    }

    const fn short(mut self, short: &'static [&'static str]) -> Self {
        self.short = short;
        self
    }

    const fn all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    const fn status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn kind(&self) -> Kind {
        Kind {
            group: self.gv.0.into(),
            version: self.gv.1.into(),
            kind: self.kind.into(),
            plural: self.plural.into(),
            singular: self.kind.to_lowercase(),
            list_kind: format!("{}List", self.kind),
            namespaced: self.namespaced,
            short_names: self.short.iter().map(|s| (*s).into()).collect(),
            categories: self.categories.iter().map(|s| (*s).into()).collect(),
            status: self.status,
            storage: self.storage.into(),
            codec: Some(self.codec),
            custom: None,
        }
    }
}

/// The built-in kinds, in the order of discovery.
pub(crate) fn builtin() -> Vec<Arc<Kind>> {
    let events_gv = ("events.k8s.io", "v1");
    [
        Row::new(CORE, "ConfigMap", "configmaps", typed::<core::v1::ConfigMap>).short(&["cm"]),
        Row::new(CORE, "Endpoints", "endpoints", typed::<core::v1::Endpoints>).short(&["ep"]),
        Row::new(CORE, "Event", "events", typed::<core::v1::Event>).short(&["ev"]),
        Row::new(CORE, "Namespace", "namespaces", typed::<core::v1::Namespace>).short(&["ns"]).cluster().status(),
        Row::new(CORE, "Node", "nodes", typed::<core::v1::Node>).short(&["no"]).cluster().status(),
        Row::new(CORE, "Pod", "pods", typed::<core::v1::Pod>).short(&["po"]).all().status(),
        Row::new(CORE, "Secret", "secrets", typed::<core::v1::Secret>),
        Row::new(CORE, "ServiceAccount", "serviceaccounts", typed::<core::v1::ServiceAccount>).short(&["sa"]),
        Row::new(CORE, "Service", "services", typed::<core::v1::Service>).short(&["svc"]).all().status(),
        Row::new(events_gv, "Event", "events", typed::<events::v1::Event>).short(&["ev"]),
        Row::new(("apps", "v1"), "Deployment", "deployments", typed::<apps::v1::Deployment>)
            .short(&["deploy"])
            .all()
            .status(),
        Row::new(RBAC, "ClusterRoleBinding", "clusterrolebindings", typed::<rbac::v1::ClusterRoleBinding>).cluster(),
        Row::new(RBAC, "ClusterRole", "clusterroles", typed::<rbac::v1::ClusterRole>).cluster(),
        Row::new(RBAC, "RoleBinding", "rolebindings", typed::<rbac::v1::RoleBinding>),
        Row::new(RBAC, "Role", "roles", typed::<rbac::v1::Role>),
        Row::new(("coordination.k8s.io", "v1"), "Lease", "leases", typed::<coordination::v1::Lease>),
        Row::new(("discovery.k8s.io", "v1"), "EndpointSlice", "endpointslices", typed::<discovery::v1::EndpointSlice>),
        Row::new(
            ("apiextensions.k8s.io", "v1"),
            "CustomResourceDefinition",
            "customresourcedefinitions",
            typed::<apiextensions::v1::CustomResourceDefinition>,
        )
        .short(&["crd", "crds"])
        .cluster()
        .status(),
    ]
    .iter()
    .map(|row| Arc::new(row.kind()))
    .collect()
}
