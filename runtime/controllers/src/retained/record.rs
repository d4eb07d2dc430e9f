//! One record of a load balancer that outlives its Service (pure): its key and its text in the
//! ConfigMap.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{providers::is_provider_name, watch::ObjectKey};

/// The maximum number of characters of a UID: the API server's have 36.
const UID_CHARS_MAX: usize = 63;
/// The maximum number of addresses in a record; they are for people.
pub(crate) const ADDRESSES_MAX: usize = 4;
/// The maximum number of characters of an address in a record: those of a host name.
pub(crate) const ADDRESS_CHARS_MAX: usize = 253;
/// The maximum number of bytes of a load balancer's name. Clouds allow at most 255; a longer one is
/// a mistake of the provider.
pub(crate) const NAME_BYTES_MAX: usize = 512;

/// What identifies a load balancer: its provider, and the UID by which the provider finds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetainedKey {
    /// Name of the provider.
    pub provider: String,
    /// UID of the Service for which the load balancer was made.
    pub uid: String,
}

impl RetainedKey {
    /// A key, if both parts are valid.
    pub(crate) fn new(provider: &str, uid: &str) -> Option<Self> {
        let is_valid = is_provider_name(provider) && is_uid(uid);
        is_valid.then(|| Self { provider: provider.to_owned(), uid: uid.to_owned() })
    }

    /// The key of an entry of the ConfigMap, `PROVIDER.UID`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (provider, uid) = text.split_once('.')?;
        Self::new(provider, uid)
    }
}

impl fmt::Display for RetainedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.provider, self.uid)
    }
}

/// Whether the text may be the UID of an object.
pub(crate) fn is_uid(text: &str) -> bool {
    let well_formed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !text.is_empty() && text.len() <= UID_CHARS_MAX && text.chars().all(well_formed)
}

/// A load balancer that stayed when its Service went, or one that another Service has adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetainedLoadBalancer {
    /// Namespace of the Services that may have it.
    pub namespace: String,
    /// Name of the Service for which it was made. Some providers find it by this name.
    pub made_for: String,
    /// Name of the Service that has it, or had it last.
    pub service: String,
    /// UID of that Service.
    pub service_uid: String,
    /// Whether that Service has it; otherwise it is retained, and a Service may adopt it.
    #[serde(default)]
    pub in_use: bool,
    /// Name in the cloud.
    pub name: String,
    /// The first addresses and host names, as far as the provider named them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Since when it is retained or adopted, RFC 3339.
    pub since: String,
}

impl RetainedLoadBalancer {
    /// The Service that has it, or had it last.
    pub(crate) fn service_key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.service.clone() }
    }

    /// Reads an entry of the ConfigMap.
    ///
    /// # Errors
    /// The text is no record.
    pub(super) fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The text of the entry.
    pub(super) fn to_text(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{RetainedKey, RetainedLoadBalancer};

    #[test]
    fn a_key_names_a_provider_and_a_uid_and_nothing_else_is_one() {
        let key = RetainedKey::parse("sim.0a-1").unwrap();
        assert_eq!((key.provider.as_str(), key.uid.as_str(), key.to_string().as_str()), ("sim", "0a-1", "sim.0a-1"));
        for text in ["", "sim", "sim.", ".0a", "Sim.0a", "sim.0a.b", "sim.0a/b", &format!("sim.{}", "a".repeat(64))] {
            assert_eq!(RetainedKey::parse(text), None, "{text}");
        }
    }

    /// A newer manager may write more, and an older one fewer fields.
    #[test]
    fn a_record_survives_its_text_and_unknown_fields_are_ignored() {
        let record = RetainedLoadBalancer {
            namespace: "shop".to_owned(),
            made_for: "first".to_owned(),
            service: "web".to_owned(),
            service_uid: "u1".to_owned(),
            in_use: true,
            name: "lb \"1\"".to_owned(),
            addresses: vec!["192.0.2.1".to_owned()],
            since: "1970-01-01T00:00:00Z".to_owned(),
        };
        assert_eq!(RetainedLoadBalancer::parse(&record.to_text()).unwrap(), record);
        let text = r#"{"namespace":"a","madeFor":"b","service":"b","serviceUid":"c","name":"d","since":"e","more":1}"#;
        let RetainedLoadBalancer { in_use, addresses, .. } = RetainedLoadBalancer::parse(text).unwrap();
        assert!(!in_use && addresses.is_empty());
        assert!(RetainedLoadBalancer::parse(r#"{"namespace":"a"}"#).is_err());
    }
}
