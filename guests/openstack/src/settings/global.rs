//! `[Global]`: where Keystone is. Who logs in is the manager's matter, so the keys of the login are
//! refused or reported, each with the place where its value belongs.

use skysail_guest_sdk::config::Ini;

const SECTION: &str = "Global";

/// Keys with a secret: nothing that a guest may read.
const SECRETS: [&str; 3] = ["password", "trustee-password", "application-credential-secret"];

/// Keys that name the account, without a secret.
const ACCOUNT: [&str; 18] = [
    "username",
    "user-id",
    "user-domain-id",
    "user-domain-name",
    "tenant-id",
    "tenant-name",
    "tenant-domain-id",
    "tenant-domain-name",
    "project-id",
    "project-name",
    "project-domain-id",
    "project-domain-name",
    "domain-id",
    "domain-name",
    "trust-id",
    "trustee-id",
    "application-credential-id",
    "application-credential-name",
];

/// Keys that name files of the manager's machine, and the field of the provider file instead.
const FILES: [(&str, &str); 5] = [
    ("ca-file", "spec.egress.caBundle"),
    ("cert-file", "a credential with clientCertificate"),
    ("key-file", "a credential with clientCertificate"),
    ("clouds-file", "spec.credentials"),
    ("cloud", "spec.credentials"),
];

/// Checks the keys of the login and of TLS.
pub(super) fn check_logins(ini: &mut Ini, credential: &str) {
    for key in SECRETS {
        if ini.optional::<String>(SECTION, key).is_some() {
            let why = format!(
                "a component must not read a secret; move it to spec.credentials.{credential}.keystone of the \
                 provider, which takes it from a file or a Secret, and remove the key"
            );
            ini.refuse(SECTION, key, why);
        }
    }
    for key in ACCOUNT {
        if ini.optional::<String>(SECTION, key).is_some() {
            let why = format!(
                "has no effect: the manager logs in with spec.credentials.{credential}.keystone; remove the key"
            );
            ini.warn(SECTION, key, why);
        }
    }
    for (key, instead) in FILES {
        if ini.optional::<String>(SECTION, key).is_some() {
            ini.warn(SECTION, key, format!("has no effect: a component reads no file; use {instead} of the provider"));
        }
    }
    if super::flag(ini, SECTION, "use-clouds", false) {
        let why =
            "a component reads no clouds.yaml; write auth-url and region here, and the login into spec.credentials";
        ini.refuse(SECTION, "use-clouds", why);
    }
    if super::flag(ini, SECTION, "tls-insecure", false) {
        let why = "the manager checks every certificate; put the cloud's authority into spec.egress.caBundle";
        ini.refuse(SECTION, "tls-insecure", why);
    }
}

/// `os-endpoint-type` as the interface of the catalogue.
pub(super) fn interface(ini: &mut Ini) -> &'static str {
    let word = ini.optional::<String>(SECTION, "os-endpoint-type").unwrap_or_default();
    match word.as_str() {
        "" | "public" | "publicURL" => "public",
        "internal" | "internalURL" => "internal",
        "admin" | "adminURL" => "admin",
        _ => {
            ini.refuse(SECTION, "os-endpoint-type", format!("{word:?} is not a type; write public, internal or admin"));
            "public"
        }
    }
}
