//! The arguments of each function, as `--json` has them.

use serde::Deserialize;
use serde_json::Value;
use skysail_provider::Route;

fn kubernetes() -> String {
    "kubernetes".to_owned()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TextArgument {
    pub(super) text: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServiceArgument {
    #[serde(default = "kubernetes")]
    pub(super) cluster: String,
    pub(super) service: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BackendsArgument {
    #[serde(default = "kubernetes")]
    pub(super) cluster: String,
    pub(super) service: Value,
    pub(super) nodes: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClusterArgument {
    #[serde(default = "kubernetes")]
    pub(super) cluster: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NamedArgument {
    #[serde(default = "kubernetes")]
    pub(super) cluster: String,
    pub(super) name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InstancesArgument {
    pub(super) nodes: Vec<Value>,
    #[serde(default)]
    pub(super) detail: DetailArgument,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum DetailArgument {
    State,
    #[default]
    Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CreateRoutesArgument {
    #[serde(default = "kubernetes")]
    pub(super) cluster: String,
    pub(super) routes: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeleteRoutesArgument {
    #[serde(default = "kubernetes")]
    pub(super) cluster: String,
    pub(super) routes: Vec<Route>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProviderIdArgument {
    pub(super) provider_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeArgument {
    pub(super) node: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SshKeyArgument {
    pub(super) user: String,
    pub(super) key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HostnameArgument {
    pub(super) hostname: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DnsArgument {
    pub(super) nameservers: Vec<String>,
    pub(super) searches: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VolumeArgument {
    #[serde(default = "kubernetes")]
    pub(super) cluster: String,
    pub(super) volume: Value,
}
