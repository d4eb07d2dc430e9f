//! The Provider that a guest's folder shows as an example.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use skysail_host::egress::EgressRuleSpec;

#[derive(Deserialize)]
struct Provider {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    config: String,
    egress: Egress,
}

#[derive(Deserialize)]
struct Egress {
    rules: Vec<EgressRuleSpec>,
}

/// The egress rules of `provider.yaml` in the folder of `guest`, the file that users copy.
///
/// Each `(from, to)` of `replacements` is applied to the text: origins become those of the test's
/// proxies, names and IDs those of the test's cloud. The rules are otherwise the same, so the tests
/// show that the provider needs no further rule.
///
/// # Errors
/// The file cannot be read, or a text that is to be replaced is not in it.
pub fn rules(guest: &str, replacements: &[(&str, &str)]) -> Result<Vec<EgressRuleSpec>> {
    Ok(read(guest, replacements)?.egress.rules)
}

/// The cloud-config of `provider.yaml` in the folder of `guest`.
///
/// # Errors
/// The file cannot be read.
pub fn config(guest: &str) -> Result<String> {
    Ok(read(guest, &[])?.config)
}

fn read(guest: &str, replacements: &[(&str, &str)]) -> Result<Spec> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../guests").join(guest).join("provider.yaml");
    let mut text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    for (from, to) in replacements {
        ensure!(text.contains(from), "{} has no {from}; correct the test", file.display());
        text = text.replace(from, to);
    }
    let provider: Provider =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is no Provider", file.display()))?;
    Ok(provider.spec)
}
