//! Bounds of lengths, counts and sizes: those of the provider file's reader, and wide ones for
//! fields that the reader does not bound.
//!
//! The API server counts characters and the reader counts bytes, so the API server accepts a few
//! texts that are too long. It needs a bound for every field to estimate the cost of its CEL rules.

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use skysail_controllers::ProviderAddresses;
use skysail_host::{
    BOUNDS,
    credentials::{CredentialSpec, Credentials},
    egress::{EgressPolicy, METHODS, Origin},
    http_client::DeletionBudget,
};
use skysail_sources::{ConfigMapReference, SignaturePolicy, TrustRoot};

use super::schema::Entry;
use crate::provider_file::{
    CA_BUNDLE_BYTES_MAX, CANARY_PERCENT_MAX, CLASS_BYTES_MAX, CONFIG_BYTES_MAX, ON_DIFFERENCE, PREFIX_BYTES_MAX,
    SCHEME_BYTES_MAX, SIGNATURE_KEY_BYTES_MAX, VENDOR_FORMATS,
};

/// Entries of a list that the reader does not bound.
const ENTRIES_MAX: usize = 64;
/// Longest name of an object or a key, as everywhere in the API.
const NAME_MAX: usize = 253;
/// Longest label's value and longest name of a namespace, as everywhere in the API.
const LABEL_MAX: usize = 63;
/// Longest host with a port.
const HOST_MAX: usize = NAME_MAX + ":65535".len();
/// Longest reference: the longest host, repository and tag, and a digest.
const REFERENCE_MAX: usize = 1024;
/// Longest name of a header or of a user.
const WORD_MAX: usize = 256;
/// Longest ARN of a role.
const ROLE_ARN_MAX: usize = 2048;
/// Longest URL.
const URL_MAX: usize = 8192;
/// Longest prefix of a path, as long as a whole URL.
const PATH_PREFIX_MAX: usize = URL_MAX;
/// Length of a digest: its kind and 64 hexadecimal digits.
const DIGEST_LENGTH: usize = "sha256:".len() + 64;
/// Longest duration; enough for a number with every unit.
const DURATION_MAX: usize = 64;

/// An RFC 1123 label.
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
/// A duration in Go's notation, as `args::parse_duration_or_zero` reads it.
const DURATION: &str = r"^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// All bounds except those of the limits.
pub(super) fn all() -> Vec<Entry> {
    let mut all = ownership();
    all.extend(source());
    all.extend(network());
    all.extend(credentials());
    all
}

fn ownership() -> Vec<Entry> {
    let cidrs = json!({"maxItems": ProviderAddresses::CIDRS_MAX});
    vec![
        ("loadBalancerClasses", json!({"maxItems": ENTRIES_MAX})),
        ("loadBalancerClasses[]", text(CLASS_BYTES_MAX)),
        ("matchLabels", json!({"maxProperties": ENTRIES_MAX})),
        ("matchLabels.*", json!({"maxLength": LABEL_MAX})),
        ("providerIdSchemes", json!({"maxItems": ENTRIES_MAX})),
        ("providerIdSchemes[]", like(SCHEME_BYTES_MAX, "^[A-Za-z0-9._+-]+$")),
        ("providerIdPrefixes", json!({"maxItems": ENTRIES_MAX})),
        ("providerIdPrefixes[]", like(PREFIX_BYTES_MAX, "^[!-~]+$")),
        ("interfaces", json!({"maxItems": ENTRIES_MAX})),
        ("loadBalancerCidrs", cidrs.clone()),
        ("loadBalancerCidrs[]", cidr()),
        ("nodeCidrs", cidrs),
        ("nodeCidrs[]", cidr()),
        ("deletionPolicy", json!({"enum": ["Delete", "Retain"]})),
        ("deletionBudget.deletions", json!({"minimum": 0, "maximum": DeletionBudget::DELETIONS_MAX})),
        ("deletionBudget.window", like(DURATION_MAX, DURATION)),
        ("config", json!({"maxLength": CONFIG_BYTES_MAX})),
        ("vendorConfig.format", json!({"enum": VENDOR_FORMATS})),
        ("vendorConfig.credential", like(LABEL_MAX, "^[-._0-9A-Za-z]+$")),
        ("shadow.onDifference", json!({"enum": ON_DIFFERENCE})),
        ("plan.onWrites", json!({"enum": ON_DIFFERENCE})),
        ("canary.percent", json!({"minimum": 1, "maximum": CANARY_PERCENT_MAX})),
        ("canary.time", like(DURATION_MAX, DURATION)),
        ("probation.time", like(DURATION_MAX, DURATION)),
        ("rollout.retry", like(DIGEST_LENGTH, "^sha256:[0-9a-f]{64}$")),
    ]
}

fn source() -> Vec<Entry> {
    let name = object_name();
    let host = like(HOST_MAX, "^[^/@ ]+$");
    let signers = json!({"minItems": 1, "maxItems": SignaturePolicy::SIGNERS_MAX});
    vec![
        ("configMap.namespace", like(LABEL_MAX, &format!("^{LABEL}$"))),
        ("configMap.name", name.clone()),
        ("configMap.names", json!({"minItems": 1, "maxItems": ConfigMapReference::PARTS_MAX})),
        ("configMap.names[]", name),
        ("configMap.key", key()),
        ("oci.reference", text(REFERENCE_MAX)),
        ("oci.pollInterval", like(DURATION_MAX, DURATION)),
        ("oci.timeout", like(DURATION_MAX, DURATION)),
        ("oci.proxy", proxy()),
        ("oci.mirrors", json!({"maxItems": ENTRIES_MAX})),
        ("oci.mirrors[]", host.clone()),
        ("oci.plainHTTP", json!({"maxItems": ENTRIES_MAX})),
        ("oci.plainHTTP[]", host.clone()),
        ("oci.trustedHosts", json!({"maxItems": ENTRIES_MAX})),
        ("oci.trustedHosts[]", host),
        ("signatures.keys", signers.clone()),
        ("signatures.keys[].pem", text(SIGNATURE_KEY_BYTES_MAX)),
        ("signatures.identities", signers),
        ("identities[].issuer", text(SignaturePolicy::NAME_BYTES_MAX)),
        ("identities[].subject", text(SignaturePolicy::NAME_BYTES_MAX)),
        ("trustRoot.json", text(TrustRoot::BYTES_MAX)),
        ("signatures.require", json!({"minimum": 1, "maximum": 2 * SignaturePolicy::SIGNERS_MAX})),
        ("caBundle.pem", text(CA_BUNDLE_BYTES_MAX)),
    ]
}

fn network() -> Vec<Entry> {
    let listed = json!({"minItems": 1, "maxItems": EgressPolicy::ENTRIES_MAX});
    let request = like(EgressPolicy::READS_BYTES_MAX, r"^(\*|[-._0-9A-Za-z]+=[-._0-9A-Za-z]+\*?)$");
    vec![
        ("egress.rules", json!({"maxItems": EgressPolicy::RULES_MAX})),
        ("egress.rules[].origins", listed.clone()),
        ("egress.rules[].methods", listed.clone()),
        ("egress.rules[].methods[]", json!({"enum": METHODS})),
        ("egress.rules[].pathPrefixes", listed.clone()),
        ("egress.rules[].pathPrefixes[]", like(PATH_PREFIX_MAX, "^/[^?# ]*$")),
        ("egress.rules[].reads", listed.clone()),
        ("egress.rules[].reads[]", request.clone()),
        ("egress.rules[].deletes", listed),
        ("egress.rules[].deletes[]", request),
        ("egress.allowCidrs", json!({"maxItems": EgressPolicy::CIDRS_MAX})),
        ("egress.allowCidrs[]", cidr()),
        ("egress.proxy", proxy()),
        ("origins[]", like(Origin::BYTES_MAX, r"^[hH][tT][tT][pP][sS]?://[^/?#@\\ ]+$")),
    ]
}

fn credentials() -> Vec<Entry> {
    let url = || like(URL_MAX, r"^[hH][tT][tT][pP][sS]?://[^?#@\\ ]+$");
    let username = || json!({"maxLength": WORD_MAX, "pattern": r"^[^:\x00-\x1f\x7f]*$"});
    let word = || text(WORD_MAX);
    let entries = CredentialSpec::ENTRIES_MAX;
    vec![
        ("spec.credentials", json!({"maxProperties": Credentials::COUNT_MAX})),
        ("credentials.*.origins", json!({"minItems": 1, "maxItems": Credentials::ORIGINS_MAX})),
        ("header.name", like(WORD_MAX, "^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")),
        ("basic.username", username()),
        ("keystone.authUrl", url()),
        ("applicationCredential.id", word()),
        ("applicationCredential.name", word()),
        ("user.id", word()),
        ("user.name", word()),
        ("user.domainId", word()),
        ("user.domainName", word()),
        ("project.id", word()),
        ("project.name", word()),
        ("project.domainId", word()),
        ("project.domainName", word()),
        ("password.trustId", word()),
        ("oauth2.tokenUrl", url()),
        ("oauth2.clientId", word()),
        ("oauth2.clientAuthentication", json!({"enum": ["Basic", "Body"]})),
        ("oauth2.scopes", json!({"maxItems": entries})),
        ("oauth2.scopes[]", word()),
        ("oauth2.parameters", json!({"maxProperties": entries})),
        ("oauth2.parameters.*", word()),
        ("serviceAccountKey.scopes", json!({"minItems": 1, "maxItems": entries})),
        ("serviceAccountKey.scopes[]", word()),
        ("aws.region", word()),
        ("aws.service", word()),
        ("credentialsFile.profile", word()),
        ("serviceAccountToken.namespace", like(LABEL_MAX, &format!("^{LABEL}$"))),
        ("serviceAccountToken.name", object_name()),
        ("serviceAccountToken.audience", word()),
        ("webIdentity.roleArn", text(ROLE_ARN_MAX)),
        ("webIdentity.sessionName", word()),
        ("webIdentity.stsUrl", url()),
        ("vsphere.url", url()),
        ("vsphere.username", username()),
        ("secretKeyRef.namespace", like(LABEL_MAX, &format!("^{LABEL}$"))),
        ("secretKeyRef.name", object_name()),
        ("secretKeyRef.key", key()),
    ]
}

fn text(max: impl Into<Value>) -> Value {
    json!({"minLength": 1, "maxLength": max.into()})
}

fn like(max: usize, pattern: &str) -> Value {
    json!({"minLength": 1, "maxLength": max, "pattern": pattern})
}

fn proxy() -> Value {
    like(Origin::BYTES_MAX, r"^[hH][tT][tT][pP]://[^/?#@\\* ]+$")
}

fn object_name() -> Value {
    like(NAME_MAX, &format!(r"^{LABEL}(\.{LABEL})*$"))
}

/// A key of a ConfigMap or a Secret.
fn key() -> Value {
    like(NAME_MAX, "^[-._a-zA-Z0-9]+$")
}

fn cidr() -> Value {
    // The length of the longest IPv6 address with its prefix length.
    json!({"format": "cidr", "maxLength": 43})
}

/// Adds the range of each limit, and what happens beyond the limit, to its description.
///
/// # Errors
/// A limit is not a field.
pub(super) fn add_limits(spec: &mut Map<String, Value>) -> anyhow::Result<()> {
    let limits = spec.get_mut("properties").and_then(|fields| fields.get_mut("limits"));
    let limits = limits.and_then(|limits| limits.get_mut("properties")).context("spec.limits has no fields")?;
    for bound in BOUNDS {
        let field = limits.get_mut(bound.name).and_then(Value::as_object_mut);
        let field = field.with_context(|| format!("spec.limits.{} is not a field", bound.name))?;
        let described = field.get("description").and_then(Value::as_str).unwrap_or_default();
        // The numbers have no separators, as in a value.
        let range = format!("{} to {} {}", bound.min, bound.max, bound.unit);
        let described = format!("{described} Range: {range}. Beyond it: {}.", bound.beyond.replace('`', ""));
        field.insert("description".to_owned(), json!(described));
        field.insert("minimum".to_owned(), json!(bound.min));
        field.insert("maximum".to_owned(), json!(bound.max));
    }
    Ok(())
}
