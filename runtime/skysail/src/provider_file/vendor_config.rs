//! `spec.vendorConfig`: the configuration file of a vendor's own manager, taken apart. Its secrets
//! become a credential, so that the component never has them; the rest is the cloud-config.

mod ini;
mod kubeconfig;
mod openstack;
mod vsphere;

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use skysail_host::credentials::{CredentialSpec, Secret, SecretKeyRef, SecretValues, ValueFrom};

/// The configuration of a vendor's own manager, as it is in use today.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VendorConfig {
    /// What it is: openstack (cloud.conf of openstack-cloud-controller-manager), vsphere
    /// (vsphere.conf of vSphere's manager, in the form of INI) or kubeconfig.
    // The schema of an enum with documented variants is no list of texts.
    #[schemars(with = "String")]
    pub(super) format: Format,
    /// Path of the file; at most 256 KiB. It is read again when it changes.
    pub(super) file: Option<PathBuf>,
    /// A key of a Secret of the cluster that has the whole text.
    pub(super) secret_key_ref: Option<SecretKeyRef>,
    /// Name of the credential that is made of the secrets, which is sent to the origins of the
    /// egress rules, or for vsphere to the vCenter alone. Several vCenters have NAME-1, NAME-2
    /// and so on. Default: the format.
    pub(super) credential: Option<String>,
}

/// A format that can be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Format {
    Openstack,
    Vsphere,
    Kubeconfig,
}

/// The names of all formats.
pub(crate) const NAMES: [&str; 3] = [Format::Openstack.name(), Format::Vsphere.name(), Format::Kubeconfig.name()];

/// What a file consists of.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The cloud-config of the component: the file without its secrets.
    pub(super) config: String,
    /// The credentials.
    pub(super) credentials: BTreeMap<String, CredentialSpec>,
    /// The values that `credentials` names.
    pub(super) values: SecretValues,
    /// CA certificates that the file brings along, as PEM.
    pub(super) ca: Option<String>,
}

/// What the provider says besides the file.
pub(super) struct Beside {
    /// Name of the credential.
    pub(super) credential: String,
    /// The origins of the egress rules.
    pub(super) origins: Vec<String>,
    /// Whether the egress rules have a CA bundle.
    pub(super) has_ca_bundle: bool,
}

impl Format {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Openstack => "openstack",
            Self::Vsphere => "vsphere",
            Self::Kubeconfig => "kubeconfig",
        }
    }

    /// Takes a file apart. The error has the place in the file, the reason and the remedy, and no
    /// value of a secret.
    pub(super) fn take_apart(self, text: &str, beside: &Beside) -> Result<Parts, String> {
        match self {
            Self::Openstack => openstack::take_apart(text, beside),
            Self::Vsphere => vsphere::take_apart(text, beside),
            Self::Kubeconfig => kubeconfig::take_apart(text, beside),
        }
    }
}

impl Parts {
    /// Keeps a secret of the file, and says where a credential finds it. The place is no Secret of
    /// a cluster: those have a namespace.
    fn keep(&mut self, key: &str, secret: String) -> ValueFrom {
        let place = SecretKeyRef { namespace: String::new(), name: "vendorConfig".to_owned(), key: key.to_owned() };
        self.values.insert(place.clone(), Secret::new(secret));
        ValueFrom::SecretKeyRef(place)
    }
}

#[cfg(test)]
mod tests;
