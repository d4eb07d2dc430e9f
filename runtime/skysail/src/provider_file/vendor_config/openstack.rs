//! `cloud.conf` of openstack-cloud-controller-manager: user, password and application credential of
//! `[Global]` become a Keystone credential.

use skysail_host::credentials::{
    ApplicationCredentialSpec, CredentialSpec, KeystoneNameSpec, KeystonePasswordSpec, KeystoneSpec,
};

use super::{Beside, Parts, ini::Ini};

const GLOBAL: &str = "global";

/// Keys that cannot be kept and have no place in a credential, with the remedy.
const REFUSED: &[(&str, &str)] = &[
    ("tls-insecure", "a certificate is always checked; write the CA certificates in egress.caBundle"),
    ("use-clouds", "clouds.yaml is another file; write its entries in [Global]"),
    ("clouds-file", "clouds.yaml is another file; write its entries in [Global]"),
    ("cloud", "clouds.yaml is another file; write its entries in [Global]"),
    ("cert-file", "a client certificate together with a token is not supported; remove cert-file and key-file"),
    ("key-file", "a client certificate together with a token is not supported; remove cert-file and key-file"),
    ("secret-name", "it names another Secret; give that Secret in a credential of the provider"),
    ("secret-namespace", "it names another Secret; give that Secret in a credential of the provider"),
];

pub(super) fn take_apart(text: &str, beside: &Beside) -> Result<Parts, String> {
    let mut ini = Ini::parse(text)?;
    for (key, remedy) in REFUSED {
        if let Some((line, value)) = ini.value(GLOBAL, key)
            && value != "false"
        {
            return Err(format!("line {line}: [Global] {key}: {remedy}"));
        }
    }
    if let Some((line, _)) = ini.value(GLOBAL, "ca-file") {
        if !beside.has_ca_bundle {
            return Err(format!(
                "line {line}: [Global] ca-file: the component can read no file; write the certificates in egress.caBundle, and ca-file is ignored"
            ));
        }
        ini.take(GLOBAL, "ca-file", "in egress.caBundle");
    }
    let auth_url = auth_url(&ini)?;
    let moved = format!("in the credential {:?}", beside.credential);
    let mut take = |key: &str| ini.take(GLOBAL, key, &moved).filter(|value| !value.is_empty());
    let mut parts = Parts::default();
    let domain = (take("domain-id"), take("domain-name"));
    let user_domain = (take("user-domain-id"), take("user-domain-name"));
    let project_domain = (take("tenant-domain-id"), take("tenant-domain-name"));
    let user = named(take("user-id"), take("username"), &user_domain, &domain);
    let project = named(take("tenant-id"), take("tenant-name"), &project_domain, &domain);
    let (id, name) = (take("application-credential-id"), take("application-credential-name"));
    let (secret, password) = (take("application-credential-secret"), take("password"));
    let (trust_id, trustee_id, trustee_password) = (take("trust-id"), take("trustee-id"), take("trustee-password"));
    let keystone = if let Some(secret) = secret {
        // The user belongs to a name only; an id says it all.
        let user = name.as_ref().filter(|_| id.is_none()).and(user);
        let name = name.filter(|_| id.is_none());
        let secret = parts.keep("application-credential-secret", secret);
        let application_credential = Some(ApplicationCredentialSpec { id, name, user, secret });
        KeystoneSpec { auth_url, application_credential, password: None }
    } else {
        let password = match &trust_id {
            Some(_) => trustee_password.or(password),
            None => password,
        };
        let password = password.ok_or("[Global] has neither password nor application-credential-secret; write one, or a credential of the provider and config in place of vendorConfig")?;
        let trustee = trustee_id.map(|id| KeystoneNameSpec { id: Some(id), ..KeystoneNameSpec::default() });
        let user = trustee.filter(|_| trust_id.is_some()).or(user);
        let user = user.ok_or("[Global] has a password and no username or user-id; write one")?;
        // A trust has its own project.
        let project = project.filter(|_| trust_id.is_none());
        let password = parts.keep("password", password);
        let password = Some(KeystonePasswordSpec { user, password, project, trust_id });
        KeystoneSpec { auth_url, application_credential: None, password }
    };
    let spec =
        CredentialSpec { origins: beside.origins.clone(), keystone: Some(keystone), ..CredentialSpec::default() };
    parts.credentials.insert(beside.credential.clone(), spec);
    ini.without_secrets()?;
    parts.config = ini.text();
    Ok(parts)
}

/// The URL of the Identity API v3. The manager before this one found the version by itself.
fn auth_url(ini: &Ini) -> Result<String, String> {
    let (line, url) = ini.value(GLOBAL, "auth-url").ok_or("[Global] has no auth-url; write the URL of Keystone")?;
    let url = url.trim_end_matches('/');
    match url.rsplit('/').next() {
        Some("v3") => Ok(url.to_owned()),
        Some("v2.0") => {
            Err(format!("line {line}: [Global] auth-url: Identity API v2.0 is not supported; write the URL of v3"))
        }
        _ => Ok(format!("{url}/v3")),
    }
}

type Domain = (Option<String>, Option<String>);

/// A user or a project: by id, or by name in its own or in the general domain.
fn named(id: Option<String>, name: Option<String>, own: &Domain, general: &Domain) -> Option<KeystoneNameSpec> {
    if let Some(id) = id {
        return Some(KeystoneNameSpec { id: Some(id), ..KeystoneNameSpec::default() });
    }
    let (domain_id, domain_name) = if own.0.is_some() || own.1.is_some() { own } else { general };
    // An id says it all.
    let domain_name = domain_name.clone().filter(|_| domain_id.is_none());
    Some(KeystoneNameSpec { id: None, name: Some(name?), domain_id: domain_id.clone(), domain_name })
}
