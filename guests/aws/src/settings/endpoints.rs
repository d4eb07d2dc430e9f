//! Where the APIs are, and which credential the host signs with.

use std::str::FromStr;

use skysail_guest_sdk::{
    config::{Ini, Url},
    http::Api,
};

use super::{GLOBAL, values::Name};

const OVERRIDE: &str = "ServiceOverride";

/// Default name of the credential.
const CREDENTIAL: &str = "aws";

/// The URL of one API and the name of the operator's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) credential: String,
}

impl Endpoint {
    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        Api::new(&self.url).origin()
    }
}

/// The services of the sections `ServiceOverride`, by the IDs of Amazon's SDKs and by the names in
/// host names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Ec2,
    Elb,
    ElbV2,
    /// `elasticloadbalancing`, the host name of both.
    BothElb,
    Other,
}

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.trim().to_ascii_lowercase().as_str() {
            "" => return Err("is not a service; write EC2, Elastic Load Balancing or Elastic Load Balancing v2"),
            "ec2" => Self::Ec2,
            "elastic load balancing" => Self::Elb,
            "elastic load balancing v2" => Self::ElbV2,
            "elasticloadbalancing" => Self::BothElb,
            _ => Self::Other,
        })
    }
}

/// `http://HOST:PORT` or `https://HOST`.
#[derive(Default)]
struct Origin(String);

impl FromStr for Origin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(Url(url)) if Api::new(&url).origin() == url => Ok(Self(url)),
            _ => Err("is not the URL of an API; write https://HOST or https://HOST:PORT"),
        }
    }
}

/// The endpoints of EC2, of Classic Load Balancers, and of the other load balancers.
pub(super) fn read(ini: &mut Ini, region: &str) -> (Endpoint, Endpoint, Endpoint) {
    let credential = ini.optional::<Name>(GLOBAL, "Credential").map_or_else(|| CREDENTIAL.to_owned(), |name| name.0);
    let usual = |host: &str| Endpoint {
        url: format!("https://{host}.{region}.{}", suffix(region)),
        credential: credential.clone(),
    };
    let (mut ec2, mut elb, mut elb_v2) = (usual("ec2"), usual("elasticloadbalancing"), usual("elasticloadbalancing"));
    let mut seen = Vec::new();
    for name in ini.named_sections(OVERRIDE) {
        let section = format!("{OVERRIDE} \"{name}\"");
        let Some((service, endpoint)) = overridden(ini, &section, region, &credential) else { continue };
        if seen.contains(&service) {
            ini.refuse(&section, "Service", "is overridden a second time for this region; keep one of the sections");
        }
        seen.push(service);
        match service {
            Service::Ec2 => ec2 = endpoint,
            Service::Elb => elb = endpoint,
            Service::ElbV2 => elb_v2 = endpoint,
            Service::BothElb => (elb, elb_v2) = (endpoint.clone(), endpoint),
            Service::Other => {}
        }
    }
    (ec2, elb, elb_v2)
}

/// Service and endpoint of a section; none where the section is not for this region.
fn overridden(ini: &mut Ini, section: &str, region: &str, credential: &str) -> Option<(Service, Endpoint)> {
    let service = ini.optional::<Service>(section, "Service");
    if ini.line(section, "Service") == 0 {
        ini.refuse(section, "Service", "is required; write EC2, Elastic Load Balancing or Elastic Load Balancing v2");
    }
    let of = ini.required::<String>(section, "Region");
    let url = ini.required::<Origin>(section, "URL").0;
    let credential = ini.optional::<Name>(section, "Credential").map_or_else(|| credential.to_owned(), |name| name.0);
    for key in ["SigningRegion", "SigningName", "SigningMethod"] {
        if ini.optional::<String>(section, key).is_some() {
            ini.warn(section, key, "has no effect: the host signs; set `region` and `service` of the credential");
        }
    }
    match service? {
        Service::Other => {
            ini.warn(
                section,
                "Service",
                "is not a service of this provider, so the section has no effect; remove the section",
            );
            None
        }
        service if of == region => Some((service, Endpoint { url, credential })),
        _ => {
            ini.warn(section, "Region", format!("{of:?} is not the region {region:?}, so the section has no effect; write {region}, or remove the section"));
            None
        }
    }
}

/// The domain of the partition that a region belongs to.
fn suffix(region: &str) -> &'static str {
    const PARTITIONS: [(&str, &str); 7] = [
        ("cn-", "amazonaws.com.cn"),
        ("us-isob-", "sc2s.sgov.gov"),
        ("us-isof-", "csp.hci.ic.gov"),
        ("us-iso-", "c2s.ic.gov"),
        ("eu-isoe-", "cloud.adc-e.uk"),
        ("eusc-", "amazonaws.eu"),
        ("", "amazonaws.com"),
    ];
    PARTITIONS.iter().find(|(prefix, _)| region.starts_with(prefix)).map_or("amazonaws.com", |(_, suffix)| suffix)
}
