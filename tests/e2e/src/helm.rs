//! The chart of `deploy/chart` and the programs that read it: the real helm, and promtool for its
//! alerts. `.ci/setup test` installs both.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::{
    tools::installed,
    workspace::{root, run},
};

/// The release of the tests, after which its objects are named.
pub const RELEASE: &str = "skysail";
/// The namespace of the release.
pub const NAMESPACE: &str = "skysail-system";

/// The folder of the chart.
#[must_use]
pub fn chart() -> PathBuf {
    root().join("deploy/chart")
}

/// A file of the chart's sets of values, as an argument of helm.
#[must_use]
pub fn values(name: &str) -> String {
    chart().join(format!("ci/{name}-values.yaml")).display().to_string()
}

/// Runs helm without a cluster.
///
/// # Errors
/// helm is not installed, or fails.
pub fn helm(arguments: &[&str]) -> Result<String> {
    run(installed("bin/helm")?, arguments)
}

/// Runs helm on the cluster of this kubeconfig.
///
/// # Errors
/// As [`helm`].
pub fn helm_with(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    helm(&[&["--kubeconfig", &kubeconfig.display().to_string(), "--namespace", NAMESPACE], arguments].concat())
}

/// What the chart renders for a release that is installed, without the definition of Provider:
/// each file of its templates with its text.
///
/// # Errors
/// As [`helm`].
pub fn rendered(arguments: &[&str]) -> Result<BTreeMap<String, String>> {
    let chart = chart().display().to_string();
    let text = helm(&[&["template", RELEASE, &chart, "--namespace", NAMESPACE, "--no-hooks"], arguments].concat())?;
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    // helm sorts by kind, so the documents of a file may stand apart.
    for document in text.split("---\n# Source: skysail/templates/").skip(1) {
        let (name, text) = document.split_once('\n').context("a document without text")?;
        let text: String = text.lines().filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect();
        let file = files.entry(name.to_owned()).or_default();
        if !file.is_empty() {
            file.push_str("---\n");
        }
        file.push_str(&text);
    }
    Ok(files)
}

/// Runs promtool.
///
/// # Errors
/// promtool is not installed, or fails.
pub fn promtool(arguments: &[&str]) -> Result<String> {
    run(installed("bin/promtool")?, arguments)
}

/// The definitions of the Prometheus operator that the chart makes objects of.
///
/// # Errors
/// The definitions are not installed.
pub fn prometheus_definitions() -> Result<[String; 3]> {
    let path = |kind: &str| installed(&format!("prometheus-operator/monitoring.coreos.com_{kind}.yaml"));
    Ok([path("servicemonitors")?, path("podmonitors")?, path("prometheusrules")?])
}
