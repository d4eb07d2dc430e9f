//! `vsphere.conf` of the vSphere cloud provider, in the form of INI: each vCenter's account becomes
//! a credential, which its section names.

use skysail_host::credentials::{CredentialSpec, VsphereSpec};

use super::{Beside, Parts, ini::Ini};

const GLOBAL: &str = "global";
const PORT: &str = "443";

/// Keys that are refused in every section, because neither the settings nor a credential can hold
/// their meaning; with the remedy.
const REFUSED: &[(&str, &str)] = &[
    ("insecure-flag", "a certificate is always checked; write the CA certificates in egress.caBundle"),
    ("secret-name", "it names another Secret; give that Secret in a credential of the provider"),
    ("secret-namespace", "it names another Secret; give that Secret in a credential of the provider"),
    ("secrets-directory", "it names other files; give them in a credential of the provider"),
];

pub(super) fn take_apart(text: &str, beside: &Beside) -> Result<Parts, String> {
    if text.lines().any(|line| line.starts_with("vcenter:") || line.starts_with("global:")) {
        return Err(
            "it is YAML; write the INI form: sections such as [VirtualCenter \"HOST\"], with key = value".to_owned()
        );
    }
    let mut ini = Ini::parse(text)?;
    let mut vcenters = ini.named_sections("virtualcenter");
    if let Some((_, server)) = ini.value(GLOBAL, "server")
        && !vcenters.iter().any(|(_, name)| *name == server.to_ascii_lowercase())
    {
        vcenters.insert(0, (GLOBAL.to_owned(), server.to_owned()));
    }
    refuse(&ini, &vcenters, beside)?;
    let (user, password) = (value(&ini, GLOBAL, "user"), value(&ini, GLOBAL, "password"));
    let port = value(&ini, GLOBAL, "port").unwrap_or_else(|| PORT.to_owned());
    let mut parts = Parts::default();
    let is_one = vcenters.len() == 1;
    for (number, (section, host)) in (1..).zip(&vcenters) {
        let own_user = value(&ini, section, "user");
        // The section names its credential in the line of the user, so that no line moves.
        let has_own_user = own_user.is_some();
        let name = if is_one { beside.credential.clone() } else { format!("{}-{number}", beside.credential) };
        let username = own_user.or_else(|| user.clone());
        let username =
            username.ok_or_else(|| format!("vCenter {host} has no user; write user in its section or in [Global]"))?;
        let password = value(&ini, section, "password").or_else(|| password.clone());
        let password = password
            .ok_or_else(|| format!("vCenter {host} has no password; write password in its section or in [Global]"))?;
        if !is_one && !has_own_user {
            return Err(format!("vCenter {host} has no user of its own; write user and password in its section"));
        }
        let port = value(&ini, section, "port").unwrap_or_else(|| port.clone());
        // The name of a section may be a tenant's, beside which `server` names the host.
        let host = &value(&ini, section, "server").unwrap_or_else(|| host.clone());
        let host = if host.contains(':') { format!("[{}]", host.trim_matches(['[', ']'])) } else { host.clone() };
        let url = format!("https://{host}:{port}");
        let password = parts.keep(&format!("{name}.password"), password);
        let vsphere = Some(VsphereSpec { url: url.clone(), username, password });
        let spec = CredentialSpec { origins: vec![url], vsphere, ..CredentialSpec::default() };
        parts.credentials.insert(name.clone(), spec);
        ini.replace(section, "user", &format!("credential = \"{name}\""));
        ini.take(section, "password", &format!("in the credential {name:?}"));
    }
    if parts.credentials.is_empty() {
        return Err("it names no vCenter; write a section [VirtualCenter \"HOST\"]".to_owned());
    }
    for key in ["user", "password"] {
        ini.take(GLOBAL, key, "in the credentials of the vCenters");
    }
    ini.without_secrets()?;
    parts.config = ini.text();
    Ok(parts)
}

fn value(ini: &Ini, section: &str, key: &str) -> Option<String> {
    ini.value(section, key).map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty())
}

fn refuse(ini: &Ini, vcenters: &[(String, String)], beside: &Beside) -> Result<(), String> {
    let sections = vcenters.iter().map(|(section, _)| section.as_str()).chain([GLOBAL]);
    for section in sections {
        for (key, remedy) in REFUSED {
            if let Some((line, value)) = ini.value(section, key)
                && !matches!(value, "" | "0" | "false")
            {
                return Err(format!("line {line}: {key}: {remedy}"));
            }
        }
        for key in ["ca-file", "thumbprint"] {
            if let Some((line, _)) = ini.value(section, key)
                && !beside.has_ca_bundle
            {
                return Err(format!(
                    "line {line}: {key}: it does not replace a CA; write the certificates of the CA in egress.caBundle, and {key} is ignored"
                ));
            }
        }
    }
    Ok(())
}
