//! The certificates of a load balancer: those that a Service lists, and the managed one that this
//! provider orders for a Service.

use std::time::Duration;

use serde_json::json;
use skysail_guest_sdk::{Error, Result};

use crate::{
    hcloud::{Hcloud, Host},
    owner::{self, Claim, Owner},
    plan::PREFIX,
    ports::{Certificates, Ports},
    wire::{Certificate, Labels, LoadBalancerService},
};

/// Collection of the API.
const CERTIFICATES: &str = "certificates";

/// Wait for the issue of a certificate, which takes some minutes.
const ISSUED_AGAIN: Duration = Duration::from_secs(10);

/// Label of a certificate that Let's Encrypt's staging environment issues.
const STAGING: &str = "HC-Use-Staging-CA";

/// The services with their certificates.
///
/// # Errors
///
/// `invalid` for a certificate that the project lacks or that could not be issued; `retry-after`
/// while Hetzner issues it.
pub(crate) fn with<H: Host>(cloud: &Hcloud<H>, owner: &Owner, ports: &Ports) -> Result<Vec<LoadBalancerService>> {
    let mut services = ports.services.clone();
    if services.is_empty() {
        return Ok(services);
    }
    let ids = match &ports.certificates {
        Certificates::Unchanged => return Ok(services),
        Certificates::Listed(listed) => listed.iter().map(|text| listed_id(cloud, text)).collect::<Result<_>>()?,
        Certificates::Managed { name, domains, staging } => {
            let certificate = match owned(cloud, owner)?.into_iter().next() {
                Some(certificate) => certificate,
                None => order(cloud, owner, name.as_deref(), domains, *staging)?,
            };
            vec![issued(certificate)?]
        }
    };
    for service in &mut services {
        service.http.get_or_insert_default().certificates = Some(ids.clone());
    }
    Ok(services)
}

/// Deletes the managed certificate of a Service, if there is one.
///
/// # Errors
///
/// `unavailable` while a load balancer uses it.
pub(crate) fn delete<H: Host>(cloud: &Hcloud<H>, owner: &Owner) -> Result<()> {
    for Certificate { id, name, .. } in owned(cloud, owner)? {
        cloud.delete(CERTIFICATES, id).map_err(|error| match error {
            Error::Invalid(why) => Error::Unavailable(format!("managed certificate {name:?} cannot be deleted: {why}")),
            error => error,
        })?;
    }
    Ok(())
}

fn owned<H: Host>(cloud: &Hcloud<H>, owner: &Owner) -> Result<Vec<Certificate>> {
    let mut found: Vec<Certificate> = cloud.labelled(CERTIFICATES, &owner::of_service(&owner.uid))?;
    found.retain(|one| one.r#type == "managed" && owner.claim(&one.labels) == Claim::Ours);
    Ok(found)
}

/// The ID that stands in the annotation, or that of the certificate with this name.
fn listed_id<H: Host>(cloud: &Hcloud<H>, text: &str) -> Result<u64> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let found: Option<Certificate> = cloud.named(CERTIFICATES, text)?;
    found.map(|certificate| certificate.id).ok_or_else(|| {
        Error::Invalid(format!(
            "annotation {PREFIX}http-certificates: the project has no certificate with the name or ID {text:?}; correct the \
             annotation, or upload the certificate"
        ))
    })
}

fn order<H: Host>(
    cloud: &Hcloud<H>,
    owner: &Owner,
    name: Option<&str>,
    domains: &[String],
    staging: bool,
) -> Result<Certificate> {
    let name = name.map_or_else(|| format!("ccm-managed-certificate-{}", owner.uid), str::to_owned);
    let mut labels = owner.added_to(&Labels::new());
    if staging {
        labels.insert(STAGING.to_owned(), "true".to_owned());
    }
    let body = json!({"name": name, "type": "managed", "domain_names": domains, "labels": labels});
    match cloud.create(CERTIFICATES, &body) {
        Ok(created) => Ok(created.object),
        Err(refusal) if refusal.code == "uniqueness_error" => Err(Error::Invalid(format!(
            "annotation {PREFIX}http-managed-certificate-name: the project has another certificate {name:?}; choose \
             another name, or write the certificate into {PREFIX}http-certificates"
        ))),
        Err(refusal) => Err(refusal.about(&format!("certificate {name:?}")).into()),
    }
}

fn issued(Certificate { id, name, status, .. }: Certificate) -> Result<u64> {
    let status = status.ok_or_else(|| Error::Internal(format!("managed certificate {name:?} has no status")))?;
    match status.issuance.as_str() {
        "completed" => Ok(id),
        "failed" => {
            let why = status.error.map_or_else(String::new, |said| said.text());
            Err(Error::Invalid(format!(
                "managed certificate {name:?} ({id}) was not issued: {why}; correct the DNS zone of its domains, and \
                 retry in Hetzner's console, or delete the certificate"
            )))
        }
        _ => Err(Error::retry_after(ISSUED_AGAIN, format!("Hetzner issues the managed certificate {name:?} ({id})"))),
    }
}
