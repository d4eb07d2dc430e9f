//! The part of the cloud's API that the provider uses, and the cloud-config.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use skysail_guest_sdk::{
    Result,
    config::{self, Checked, Ini},
    http::{Api, Request},
    paging,
};

/// Entries of a page: the maximum of the API.
const PAGE_ENTRIES: &str = "500";

/// Key-value pairs on a record.
pub(crate) type Tags = BTreeMap<String, String>;

/// The cloud's endpoint, and the zone of this process.
pub(crate) struct Cloud {
    pub(crate) api: Api,
    /// `[Global] zone`.
    pub(crate) zone: Option<String>,
}

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
}

/// A machine.
#[derive(Clone, Deserialize)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) zone: String,
    #[serde(rename = "type")]
    pub(crate) machine_type: String,
    pub(crate) private_address: String,
    pub(crate) public_address: Option<String>,
    pub(crate) state: String,
}

/// A zone.
#[derive(Serialize, Deserialize)]
pub(crate) struct CloudZone {
    pub(crate) name: String,
    pub(crate) region: String,
}

/// A cluster.
#[derive(Deserialize)]
pub(crate) struct CloudCluster {
    pub(crate) name: String,
    pub(crate) master: String,
}

/// A route.
#[derive(Deserialize)]
pub(crate) struct CloudRoute {
    pub(crate) id: String,
    pub(crate) destination_cidr: String,
    pub(crate) instance: String,
    pub(crate) blackhole: bool,
}

/// An elastic IP.
#[derive(Deserialize)]
pub(crate) struct ElasticIp {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) state: String,
    pub(crate) tags: Tags,
}

/// A real server; its health is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Backend {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// A virtual server.
#[derive(Deserialize)]
pub(crate) struct VirtualServer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) elastic_ip: String,
    pub(crate) port: u16,
    pub(crate) real_servers: Vec<Backend>,
    pub(crate) allowed_sources: Vec<String>,
    pub(crate) session_affinity_seconds: u32,
    pub(crate) state: String,
    pub(crate) tags: Tags,
}

impl Cloud {
    /// The cloud-config: `[Global] endpoint = URL`, and `zone = NAME` where this process runs in
    /// the cloud.
    pub(crate) fn parse(text: &str) -> Checked<Self> {
        let mut ini = Ini::parse(text);
        let endpoint: String = ini.required("Global", "endpoint");
        if !endpoint.is_empty() && !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            ini.refuse("Global", "endpoint", format!("{endpoint:?} is not a URL such as http://127.0.0.1:8088"));
        }
        let zone = ini.optional("Global", "zone");
        ini.finish(Self { api: Api::new(&endpoint).credential("api"), zone })
    }

    /// The cloud of this call.
    pub(crate) fn load() -> Result<Self> {
        config::load(Self::parse)
    }

    /// Every record that matches the request's filters, from all pages.
    pub(crate) fn list<T: DeserializeOwned>(request: &Request) -> Result<Vec<T>> {
        paging::collect(|cursor| {
            let request = request.clone().query("limit", PAGE_ENTRIES).query_opt("cursor", cursor);
            let page: Page<T> = request.send()?.json()?;
            Ok((page.items, page.next))
        })
    }

    pub(crate) fn zones(&self) -> Result<Vec<CloudZone>> {
        Self::list(&self.api.get(&["v1", "zones"]))
    }

    pub(crate) fn clusters(&self) -> Result<Vec<CloudCluster>> {
        Self::list(&self.api.get(&["v1", "clusters"]))
    }

    pub(crate) fn add_ssh_key(&self, user: &str, key: &str) -> Result<()> {
        #[derive(Serialize)]
        struct New<'a> {
            user: &'a str,
            key: &'a str,
        }
        self.api.post(&["v1", "ssh-keys"]).json(&New { user, key }).send()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Cloud;

    #[test]
    fn a_config_names_the_endpoint_and_perhaps_the_zone() {
        let cloud = Cloud::parse("[Global]\nendpoint = http://127.0.0.1:8088/\nzone = zone-a\n");
        assert_eq!(cloud.config().unwrap().zone.as_deref(), Some("zone-a"));
    }

    #[test]
    fn each_problem_names_line_and_key() {
        let problems = |text| {
            let problems = Cloud::parse(text).problems();
            problems.into_iter().map(|problem| (problem.line, problem.key)).collect::<Vec<_>>()
        };
        assert_eq!(problems(""), [(0, "Global.endpoint".to_owned())]);
        assert_eq!(problems("[Global]\nendpoint = cloud\n"), [(2, "Global.endpoint".to_owned())]);
        assert_eq!(problems("[Global]\nendpoint = http://x\nzoen = a\n"), [(3, "Global.zoen".to_owned())]);
    }
}
