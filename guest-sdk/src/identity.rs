//! Constructors for the answers of `identity` and `instances`.

use std::fmt;

use crate::{Info, Instance, Problem, Severity};

/// Key of [`Info::extra`].
const PAGE_NODES: &str = "page-nodes";

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
            serial_load_balancers: false,
            extra: Vec::new(),
        }
    }

    /// The same with pages of at most this many nodes for `instances.describe`, 1 to 500: for a
    /// cloud that needs one request or more for each machine.
    #[must_use]
    pub fn page_nodes(mut self, nodes: u16) -> Self {
        self.extra.push((PAGE_NODES.to_owned(), nodes.to_string()));
        self
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

impl fmt::Display for Problem {
    /// `line 4, Global.VPC: …`, or `warning, line 4, Global.VPC: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, line, key, message } = self;
        let warning = if *severity == Severity::Fatal { "" } else { "warning, " };
        write!(f, "{warning}line {line}, {key}: {message}")
    }
}
