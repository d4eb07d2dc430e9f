//! Constructors for the answers of `identity` and `instances`.

use crate::{Info, Instance, Problem, Severity};

impl Info {
    /// A provider whose provider-ID scheme is its name, and which tags cloud resources with the
    /// cluster's name.
    ///
    /// `name` as upstream's `ProviderName()`: lower case letters, digits and dashes, at most 63.
    #[must_use]
    pub fn new(name: &str, version: &str, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            description: description.to_owned(),
            provider_id_schemes: vec![name.to_owned()],
            has_cluster_id: true,
            extra: Vec::new(),
        }
    }
}

impl Instance {
    /// A running machine; every field except the provider ID is empty.
    #[must_use]
    pub fn new(provider_id: String) -> Self {
        Self {
            provider_id,
            shutdown: false,
            instance_type: String::new(),
            zone: String::new(),
            region: String::new(),
            addresses: Vec::new(),
            labels: Vec::new(),
            extra: Vec::new(),
        }
    }
}

impl Problem {
    /// A problem that refuses the cloud-config. `line` is 1-based, 0 where unknown; `key` is empty
    /// where unknown.
    #[must_use]
    pub fn fatal(line: u32, key: &str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Fatal, line, key: key.to_owned(), message: message.into() }
    }

    /// A problem that is reported and refuses nothing; parameters as for [`Problem::fatal`].
    #[must_use]
    pub fn warning(line: u32, key: &str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, line, key: key.to_owned(), message: message.into() }
    }
}
