//! The endpoints of the APIs: written down by the operator, or from Keystone's catalogue.

use skysail_guest_sdk::{Error, Result};

use crate::{
    settings::{APIS, Api, Settings},
    wire::Catalog,
};

/// The endpoint of each API in the catalogue, in the order of [`APIS`]; none where the catalogue
/// has none for the region and the interface.
pub(crate) fn endpoints(catalog: &Catalog, settings: &Settings) -> [Option<String>; APIS.len()] {
    APIS.map(|(_, kind, _)| {
        let entries = catalog.catalog.iter().filter(|entry| entry.r#type == kind);
        let mut endpoints = entries.flat_map(|entry| &entry.endpoints);
        let is_ours = |region: &str| settings.region.is_empty() || region == settings.region;
        let found = endpoints.find(|endpoint| {
            endpoint.interface == settings.interface && (is_ours(&endpoint.region) || is_ours(&endpoint.region_id))
        });
        found.map(|endpoint| endpoint.url.clone())
    })
}

/// The URL below which the API's objects are.
///
/// # Errors
///
/// `invalid` without an endpoint.
pub(crate) fn base(api: Api, endpoint: Option<&str>, settings: &Settings) -> Result<String> {
    let Some(url) = endpoint else {
        let entry = APIS.iter().find(|(candidate, _, _)| *candidate == api);
        let (_, kind, key) = entry.copied().unwrap_or((api, "", ""));
        return Err(Error::Invalid(format!(
            "Keystone's catalogue has no {} endpoint of type {kind} in region {:?}; correct region or os-endpoint-type \
             in [Global], or set {key} in [Skysail]",
            settings.interface, settings.region
        )));
    };
    let url = url.trim_end_matches('/');
    Ok(match api {
        Api::Compute => url.to_owned(),
        Api::Network => format!("{}/v2.0", without_version(url)),
        Api::LoadBalancer => format!("{}/v2.0/lbaas", without_version(url)),
        Api::KeyManager => format!("{}/v1", url.strip_suffix("/v1").unwrap_or(url)),
    })
}

/// The URL of the load-balancer API that lists its versions.
///
/// # Errors
///
/// As [`base`].
pub(crate) fn octavia_root(endpoint: Option<&str>, settings: &Settings) -> Result<String> {
    let base = base(Api::LoadBalancer, endpoint, settings)?;
    Ok(base.strip_suffix("v2.0/lbaas").unwrap_or(&base).to_owned())
}

fn without_version(url: &str) -> &str {
    ["/v2.0/lbaas", "/v2.0", "/v2"].iter().find_map(|version| url.strip_suffix(version)).unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::{base, endpoints, octavia_root};
    use crate::{
        settings::{self, Api, Settings},
        wire::Catalog,
    };

    fn settings(region: &str) -> Settings {
        settings::parse(&format!("[Global]\nauth-url = http://k\nregion = {region}\n")).config().unwrap()
    }

    fn catalog() -> Catalog {
        serde_json::from_value(serde_json::json!({"catalog": [
            {"type": "compute", "endpoints": [
                {"interface": "admin", "region": "two", "url": "http://admin"},
                {"interface": "public", "region": "one", "region_id": "one", "url": "http://one/v2.1"},
                {"interface": "public", "region": "two", "region_id": "two", "url": "http://two/v2.1"},
            ]},
            {"type": "network", "endpoints": [{"interface": "public", "region_id": "two", "url": "http://n"}]},
        ]}))
        .unwrap()
    }

    #[test]
    fn an_endpoint_is_chosen_by_type_interface_and_region() {
        let found = endpoints(&catalog(), &settings("two"));
        assert_eq!(found[0].as_deref(), Some("http://two/v2.1"));
        assert_eq!(found[1].as_deref(), Some("http://n"));
        assert_eq!(found[2], None);
        assert_eq!(endpoints(&catalog(), &settings(""))[0].as_deref(), Some("http://one/v2.1"));
        let error = base(Api::LoadBalancer, None, &settings("two")).unwrap_err();
        assert!(error.message().contains("no public endpoint of type load-balancer in region \"two\""), "{error:?}");
        assert!(error.message().contains("load-balancer-endpoint"), "{error:?}");
    }

    #[test]
    fn the_version_is_added_where_the_catalogue_lacks_it() {
        let settings = settings("one");
        let base = |api, url| base(api, Some(url), &settings).unwrap();
        for url in ["http://x:9876", "http://x:9876/", "http://x:9876/v2", "http://x:9876/v2.0/"] {
            assert_eq!(base(Api::LoadBalancer, url), "http://x:9876/v2.0/lbaas");
            assert_eq!(octavia_root(Some(url), &settings).unwrap(), "http://x:9876/");
            assert_eq!(base(Api::Network, url), "http://x:9876/v2.0");
        }
        assert_eq!(base(Api::Compute, "http://x/v2.1/4f1c"), "http://x/v2.1/4f1c");
        assert_eq!(base(Api::KeyManager, "http://x/v1/"), "http://x/v1");
    }
}
