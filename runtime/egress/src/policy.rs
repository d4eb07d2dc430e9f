//! Decides whether a request may leave the process. The operator's rules check the origin, the
//! method and the path; then every address of the name is checked.
//!
//! The threat is server-side request forgery: an untrusted component requests a URL whose name is
//! allowed and leads to the metadata service, to the API server or to another tenant's database, by
//! DNS that the attacker controls, by an unusual spelling of an address or by a redirect. So
//! - a request that no rule allows is refused: a policy without rules refuses everything;
//! - a URL is checked in the spelling in which it is sent, and a URL that two parsers could read
//!   differently is refused;
//! - the host resolves an allowed name, once for each connection, and checks *each* address; the
//!   connection goes to one of the checked addresses. One refused address refuses the whole name:
//!   an honest API does not mix public and internal addresses, and dropping only the refused ones
//!   would make the outcome depend on the order of the attacker's DNS answer;
//! - an address in a URL is checked the same way, without a look-up;
//! - with a proxy ([`EgressSpec::proxy`]) the proxy resolves the names, and the proxy's own rules
//!   have to refuse internal addresses;
//! - private, link-local and the other special ranges are refused unless the operator opens them in
//!   `allowCidrs`. A CIDR there must lie inside one such range, so `0.0.0.0/0` is an error. A
//!   metadata service's address opens only as a single address (`169.254.169.254/32`): a wider CIDR
//!   such as `169.254.0.0/16` does not open it.
//!
//! Must not open sockets; [`crate::http_client`] opens them after these checks.

mod address;
mod origin;
mod path;
mod proxy;
mod reads;
mod target;

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use address::Addresses;
pub use address::CidrError;
pub(crate) use origin::{Authority, AuthorityHost};
pub use origin::{Origin, OriginError};
use path::PathPrefix;
pub use path::PathPrefixError;
pub use proxy::Proxy;
use reads::Reads;
pub(crate) use reads::{SAFE_METHODS, Sent};
pub(crate) use target::Target;

/// What the operator allows a provider to reach. The default allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EgressSpec {
    /// A request is allowed where one rule allows its origin, its method and its path. At most 64.
    /// Default: none, which refuses every request.
    pub rules: Vec<EgressRuleSpec>,
    /// CIDRs that may be reached although they are private, link-local, loopback or special in
    /// another way, for example 10.20.0.0/16; at most 64. A metadata service's address opens only
    /// as a single address: 169.254.169.254/32. Default: none.
    pub allow_cidrs: Vec<String>,
    /// CA certificates that are trusted in addition to the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<CaBundleSpec>,
    /// Proxy for all requests and logins of the provider: `http://proxy.example.com:3128`. The
    /// proxy resolves the names, so its rules have to refuse internal addresses. Default: none; the
    /// environment variables of proxies are not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
}

/// A rule allows each of its methods below each of its path prefixes at each of its origins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EgressRuleSpec {
    /// Scheme, host and, where it is not the scheme's default, port: `https://api.example.com`,
    /// `https://*.example.com:8443` (exactly one label), or `https://[fd00::1]`. 1 to 64.
    pub origins: Vec<String>,
    /// The allowed methods, in upper case. Default: GET, HEAD, POST, PUT, PATCH, DELETE and
    /// OPTIONS, which are all methods that can be allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// The allowed paths, by whole segments: /v2/lb covers /v2/lb/1 and not /v2/lbx. 1 to 64.
    /// Default: every path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_prefixes: Option<Vec<String>>,
    /// The requests of this rule that change nothing, for an API that reads by POST. An entry is a
    /// parameter of the query or of a form with its value or the beginning of its value,
    /// `Action=Describe*`, or `*` for every request. `skysail plan` and `rollout.shadow` send
    /// nothing else. 1 to 64. Default: the methods GET, HEAD and OPTIONS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<String>>,
    /// The requests of this rule that delete something, beside those with the method DELETE, for an
    /// API that deletes by POST; they count in `deletionBudget`. Entries as in reads:
    /// `Action=Delete*`. A request without the parameter, or that could be read in two ways, counts
    /// too. 1 to 64. Default: the method DELETE alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletes: Option<Vec<String>>,
}

/// Where the certificates are: exactly one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum CaBundleSpec {
    /// Path of a file with the certificates as PEM, one after the other; at most 1 MiB. It is read
    /// again when it changes.
    File(PathBuf),
    /// The certificates themselves as PEM, one after the other; at most 1 MiB.
    Pem(String),
}

/// An operator's rules after validation: which requests may leave.
#[derive(Clone, Debug)]
pub struct EgressPolicy {
    rules: Vec<Rule>,
    addresses: Addresses,
    ca: Vec<CertificateDer<'static>>,
    proxy: Option<Proxy>,
}

#[derive(Clone, Debug)]
struct Rule {
    origins: Vec<Origin>,
    methods: BTreeSet<String>,
    /// An empty list covers every path.
    paths: Vec<PathPrefix>,
    reads: Option<Vec<Reads>>,
    deletes: Option<Vec<Reads>>,
}

/// Why a request may not leave. The text names what was refused and reaches the guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EgressRefusal(pub String);

/// What is wrong with an [`EgressSpec`]; `place` is as in the file, from `egress` down.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// An origin cannot be used.
    #[error("{place}: origin {text:?} {reason}")]
    Origin {
        /// For example `rules[0].origins[1]`.
        place: String,
        /// As written.
        text: String,
        /// What is wrong, and what to write.
        reason: OriginError,
    },
    /// An origin is an address that is refused and that no CIDR of `allowCidrs` opens.
    #[error("{place}: origin {origin} can never be reached: {reason}")]
    UnreachableOrigin {
        /// For example `rules[0].origins[1]`.
        place: String,
        /// As written.
        origin: Origin,
        /// Why, and what to write.
        reason: String,
    },
    /// A text that is not one of [`METHODS`].
    #[error("{place}: method {text:?} cannot be allowed; write one of {METHODS:?}")]
    Method {
        /// For example `rules[0].methods[1]`.
        place: String,
        /// As written.
        text: String,
    },
    /// A path prefix cannot be used.
    #[error("{place}: path prefix {text:?} {reason}")]
    Path {
        /// For example `rules[0].pathPrefixes[1]`.
        place: String,
        /// As written.
        text: String,
        /// What is wrong, and what to write.
        reason: PathPrefixError,
    },
    /// A text that is no entry of `reads` or `deletes`.
    #[error(
        "{place}: {text:?} names no request; write *, or NAME=VALUE or NAME=BEGINNING* with letters, digits, '.', '_' and '-', \
         together at most 128 bytes"
    )]
    Reads {
        /// For example `rules[0].reads[1]`.
        place: String,
        /// As written.
        text: String,
    },
    /// A list is given and is empty, or is too long.
    #[error("{place}: {reason}")]
    List {
        /// For example `rules[0].origins`.
        place: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A CIDR cannot be allowed.
    #[error("{place}: {text:?} {reason}")]
    Cidr {
        /// For example `allowCidrs[1]`.
        place: String,
        /// As written.
        text: String,
        /// What is wrong, and what to write.
        reason: CidrError,
    },
    /// The proxy cannot be used.
    #[error("proxy: {text:?} {reason}")]
    Proxy {
        /// As written.
        text: String,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// The CA bundle could not be read.
    #[error("caBundle: read {path}; check that the file exists, is readable and is at most 1 MiB")]
    CaBundleFile {
        /// As written.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The CA bundle holds no certificates, or is not PEM.
    #[error("caBundle: {reason}; it must be PEM with at least one certificate")]
    CaBundle {
        /// What is wrong.
        reason: String,
    },
}

/// The methods that can be allowed. CONNECT opens tunnels and TRACE echoes the credential; no cloud
/// API needs either.
pub const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The bundle of a usual Linux distribution has a fifth of this size.
const CA_BUNDLE_BYTES_MAX: u64 = 1024 * 1024;

// === impl EgressPolicy ===

impl EgressPolicy {
    /// The most rules. The largest known provider needs six.
    pub const RULES_MAX: usize = 64;
    /// The most origins, methods or path prefixes of one rule: each request searches these lists.
    pub const ENTRIES_MAX: usize = 64;
    /// The most CIDRs: an operator lists networks, not machines.
    pub const CIDRS_MAX: usize = 64;
    /// The longest entry of `reads`, in bytes.
    pub const READS_BYTES_MAX: usize = reads::ENTRY_BYTES_MAX;

    /// Checks a spec, and reads the CA bundle's file (blocking, at most 1 MiB).
    ///
    /// # Errors
    /// The first fault, with its place, the reason and the remedy.
    pub fn new(spec: &EgressSpec) -> Result<Self, EgressError> {
        let EgressSpec { rules, allow_cidrs, ca_bundle, proxy } = spec;
        let mut addresses = Addresses::default();
        for (index, text) in allow_cidrs.iter().enumerate() {
            let place = format!("allowCidrs[{index}]");
            addresses.allow(text).map_err(|reason| EgressError::Cidr { place, text: text.clone(), reason })?;
        }
        if rules.len() > Self::RULES_MAX {
            let reason = format!("has {} entries, at most {} are allowed; join rules", rules.len(), Self::RULES_MAX);
            return Err(EgressError::List { place: "rules".to_owned(), reason });
        }
        let rules =
            rules.iter().enumerate().map(|(index, rule)| Rule::new(&format!("rules[{index}]"), rule, &addresses));
        let rules = rules.collect::<Result<_, _>>()?;
        let ca = ca_bundle.as_ref().map(read_ca_bundle).transpose()?.unwrap_or_default();
        let proxy = proxy.as_ref().map(|text| {
            let refused = |reason| EgressError::Proxy { text: text.clone(), reason };
            let proxy = Proxy::parse(text).map_err(refused)?;
            if let Some(Err(error)) = proxy.address().map(|address| addresses.judge(address)) {
                return Err(refused(format!("is not allowed: {error}")));
            }
            Ok(proxy)
        });
        Ok(Self { rules, addresses, ca, proxy: proxy.transpose()? })
    }

    /// Checks the origin, the method, the path and an address in the URL. The addresses of a name
    /// are checked later, by [`Self::judge_address`].
    pub(crate) fn judge(&self, method: &str, target: &Target) -> Result<(), EgressRefusal> {
        let Target { url, authority } = target;
        // First, because no rule can allow an address that is refused.
        if let AuthorityHost::Address(address) = authority.host {
            self.judge_address(address)?;
        }
        let named: Vec<_> =
            self.rules.iter().filter(|rule| rule.origins.iter().any(|o| o.matches(authority))).collect();
        if named.is_empty() {
            return Err(EgressRefusal(format!("no rule allows origin {authority}")));
        }
        let by_method: Vec<_> = named.into_iter().filter(|rule| rule.methods.contains(method)).collect();
        if by_method.is_empty() {
            return Err(EgressRefusal(format!("no rule allows method {method} at {authority}")));
        }
        let path = url.path();
        let ambiguous = path::is_ambiguous(path);
        if !by_method.iter().any(|rule| rule.allows_path(path, ambiguous)) {
            let why = if ambiguous { "the ambiguous path" } else { "the path" };
            return Err(EgressRefusal(format!("no rule allows {why} of {method} {authority}{path}")));
        }
        Ok(())
    }

    /// Whether an allowed request only reads: one of the rules that allow it says so.
    pub(crate) fn only_reads(&self, target: &Target, sent: Sent<'_>) -> bool {
        self.allowing(target, sent).any(|rule| reads::only_reads(rule.reads.as_deref(), sent))
    }

    /// Whether an allowed request may delete something: one of the rules that allow it says so, and
    /// none says that it only reads.
    pub(crate) fn may_delete(&self, target: &Target, sent: Sent<'_>) -> bool {
        !self.only_reads(target, sent)
            && self.allowing(target, sent).any(|rule| reads::may_delete(rule.deletes.as_deref(), sent))
    }

    /// The rules that allow the request.
    fn allowing(&self, target: &Target, sent: Sent<'_>) -> impl Iterator<Item = &Rule> {
        let Target { url, authority } = target;
        let (path, ambiguous) = (url.path(), path::is_ambiguous(url.path()));
        self.rules.iter().filter(move |rule| {
            rule.origins.iter().any(|origin| origin.matches(authority))
                && rule.methods.contains(sent.method)
                && rule.allows_path(path, ambiguous)
        })
    }

    /// Whether a request that a guest made only reads: its method or the operator's rules say so.
    /// False for one that is not sent.
    #[must_use]
    pub fn is_read(&self, method: &str, url: &str, headers: &[(String, String)], body: &[u8]) -> bool {
        let (Ok(target), Some(headers)) = (Target::parse(url), header_map(headers)) else { return false };
        self.only_reads(&target, Sent { method, query: target.url.query(), headers: &headers, body })
    }

    /// Checks whether the policy allows any request to this origin, with any method and path.
    ///
    /// # Errors
    /// Names the address or the origin that is not allowed.
    pub fn judge_origin(&self, origin: &Origin) -> Result<(), EgressRefusal> {
        if let Some(address) = origin.address() {
            self.judge_address(address)?;
        }
        let is_allowed = self.rules.iter().any(|rule| rule.origins.iter().any(|allowed| allowed.covers(origin)));
        if is_allowed { Ok(()) } else { Err(EgressRefusal(format!("no rule allows origin {origin}"))) }
    }

    /// Checks one address and returns its canonical form.
    pub(crate) fn judge_address(&self, address: IpAddr) -> Result<IpAddr, EgressRefusal> {
        self.addresses.judge(address).map_err(|refused| EgressRefusal(refused.to_string()))
    }

    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    pub(crate) fn ca(&self) -> &[CertificateDer<'static>] {
        &self.ca
    }
}

/// Checks that an address is public: not private, link-local or special in another way, and not a
/// metadata service's.
///
/// # Errors
/// The address and the range that it belongs to.
pub fn judge_public_address(address: IpAddr) -> Result<(), String> {
    Addresses::default().judge(address).map(drop).map_err(|refused| refused.reason())
}

/// None if a header cannot be sent, or there are too many.
fn header_map(headers: &[(String, String)]) -> Option<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.try_append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?).ok()?;
    }
    Some(map)
}

// === impl Rule ===

impl Rule {
    fn new(place: &str, spec: &EgressRuleSpec, addresses: &Addresses) -> Result<Self, EgressError> {
        let EgressRuleSpec { origins, methods, path_prefixes, reads, deletes } = spec;
        check_list(&format!("{place}.origins"), Some(origins.len()), "name at least one origin")?;
        check_list(
            &format!("{place}.methods"),
            methods.as_ref().map(Vec::len),
            "leave it out to allow the usual methods",
        )?;
        check_list(
            &format!("{place}.pathPrefixes"),
            path_prefixes.as_ref().map(Vec::len),
            "leave it out to allow every path",
        )?;
        let origins = origins.iter().enumerate().map(|(index, text)| {
            let place = format!("{place}.origins[{index}]");
            let origin = match Origin::parse(text) {
                Ok(origin) => origin,
                Err(reason) => return Err(EgressError::Origin { place, text: text.clone(), reason }),
            };
            // Reported at validation, because every request to this origin would fail.
            if let Some(Err(refused)) = origin.address().map(|address| addresses.judge(address)) {
                return Err(EgressError::UnreachableOrigin { place, origin, reason: refused.to_string() });
            }
            Ok(origin)
        });
        let origins = origins.collect::<Result<_, _>>()?;
        let methods = match methods {
            None => METHODS.iter().map(|method| (*method).to_owned()).collect(),
            Some(listed) => {
                for (index, text) in listed.iter().enumerate() {
                    if !METHODS.contains(&text.as_str()) {
                        let place = format!("{place}.methods[{index}]");
                        return Err(EgressError::Method { place, text: text.clone() });
                    }
                }
                listed.iter().cloned().collect()
            }
        };
        let paths = path_prefixes.iter().flatten().enumerate().map(|(index, text)| {
            PathPrefix::parse(text).map_err(|reason| {
                let place = format!("{place}.pathPrefixes[{index}]");
                EgressError::Path { place, text: text.clone(), reason }
            })
        });
        let paths = paths.collect::<Result<_, _>>()?;
        let reads = requests(&format!("{place}.reads"), reads.as_deref(), "read")?;
        let deletes = requests(&format!("{place}.deletes"), deletes.as_deref(), "delete")?;
        Ok(Self { origins, methods, paths, reads, deletes })
    }

    fn allows_path(&self, path: &str, ambiguous: bool) -> bool {
        if self.paths.is_empty() || self.paths.iter().any(PathPrefix::covers_all) {
            return true;
        }
        !ambiguous && self.paths.iter().any(|prefix| prefix.covers(path))
    }
}

/// The entries of `reads` or `deletes`; `what` such requests do.
fn requests(place: &str, listed: Option<&[String]>, what: &str) -> Result<Option<Vec<Reads>>, EgressError> {
    let remedy = format!("leave it out where the method says which requests {what}");
    check_list(place, listed.map(<[String]>::len), &remedy)?;
    let entry = |(index, text): (usize, &String)| {
        let place = format!("{place}[{index}]");
        Reads::parse(text).ok_or_else(|| EgressError::Reads { place, text: text.clone() })
    };
    listed.map(|listed| listed.iter().enumerate().map(entry).collect()).transpose()
}

fn check_list(place: &str, length: Option<usize>, remedy: &str) -> Result<(), EgressError> {
    let reason = match length {
        Some(0) => format!("is empty, which allows nothing; {remedy}"),
        Some(length) if length > EgressPolicy::ENTRIES_MAX => {
            format!("has {length} entries, at most {} are allowed; split the rule", EgressPolicy::ENTRIES_MAX)
        }
        _ => return Ok(()),
    };
    Err(EgressError::List { place: place.to_owned(), reason })
}

fn read_ca_bundle(spec: &CaBundleSpec) -> Result<Vec<CertificateDer<'static>>, EgressError> {
    let pem = match spec {
        CaBundleSpec::Pem(text) => text.as_bytes().to_vec(),
        CaBundleSpec::File(path) => crate::read_file(path, CA_BUNDLE_BYTES_MAX)
            .map_err(|source| EgressError::CaBundleFile { path: path.display().to_string(), source })?,
    };
    let certificates = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        // The parser's error prints lists of bytes, so it is left out.
        .map_err(|_| EgressError::CaBundle { reason: "a PEM section is truncated or is not base64".to_owned() })?;
    if certificates.is_empty() {
        return Err(EgressError::CaBundle { reason: "no certificate found".to_owned() });
    }
    Ok(certificates)
}

#[cfg(test)]
pub(crate) mod tests;
