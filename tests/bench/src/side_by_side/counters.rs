//! Parses the counters of a Prometheus page for the figures.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;

/// The counters of one page: name, labels, value.
#[derive(Debug, Default)]
pub(super) struct Counters(Vec<(String, BTreeMap<String, String>, f64)>);

pub(super) async fn scrape(client: &Client) -> Result<Counters> {
    let request = http::Request::get("/metrics").body(Vec::new()).context("a request")?;
    Ok(Counters::parse(&client.request_text(request).await?))
}

impl Counters {
    fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The sums of a metric, grouped by the result of `key` for the labels; a sample with none is
    /// left out.
    pub(super) fn sums(
        &self,
        metric: &str,
        key: impl Fn(&BTreeMap<String, String>) -> Option<String>,
    ) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::<String, f64>::new();
        for (name, labels, value) in &self.0 {
            if let Some(key) = (name == metric).then(|| key(labels)).flatten() {
                *sums.entry(key).or_default() += value;
            }
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters of events")]
        sums.into_iter().map(|(key, sum)| (key, sum as u64)).collect()
    }

    /// Requests that the API server answered: `PATCH nodes/status`.
    pub(super) fn api_requests(&self) -> BTreeMap<String, u64> {
        self.sums("apiserver_request_total", |labels| {
            let (verb, resource) =
                (labels.get("verb")?, labels.get("resource").filter(|resource| !resource.is_empty())?);
            // APPLY is the server's name for a server-side apply.
            let subresource = labels.get("subresource").filter(|name| !name.is_empty());
            Some(subresource.map_or_else(|| format!("{verb} {resource}"), |name| format!("{verb} {resource}/{name}")))
        })
    }

    /// Calls of the provider; both managers use the names of the contract.
    pub(super) fn provider_calls(&self) -> BTreeMap<String, u64> {
        // Each manager has one of the two metrics.
        ["skysail_provider_calls_total", "simcloud_provider_calls_total"]
            .into_iter()
            .flat_map(|metric| self.sums(metric, |labels| Some(common_name(labels.get("function")?).to_owned())))
            .collect()
    }
}

/// The common name of a function.
fn common_name(function: &str) -> &str {
    match function {
        "EnsureLoadBalancer" | "load-balancers.ensure" => "ensure",
        "UpdateLoadBalancer" | "load-balancers.update" => "update",
        "GetLoadBalancer" | "load-balancers.get" => "get",
        "EnsureLoadBalancerDeleted" | "load-balancers.ensure-deleted" => "ensure-deleted",
        "InstanceMetadata" | "InstanceExists" | "InstanceShutdown" | "instances.describe" => "instances",
        other => other,
    }
}

/// `name{label="value",…} 1.5`
fn sample(line: &str) -> Option<(String, BTreeMap<String, String>, f64)> {
    let (left, value) = line.rsplit_once(' ')?;
    let (name, labels) = left.split_once('{').map_or((left, ""), |(name, labels)| (name, labels.trim_end_matches('}')));
    let labels = labels.split("\",").filter_map(|pair| {
        let (label, value) = pair.split_once("=\"")?;
        Some((label.trim().to_owned(), value.trim_end_matches('"').to_owned()))
    });
    Some((name.to_owned(), labels.collect(), value.parse().ok()?))
}

/// The difference between two samples of the counters.
pub(super) fn difference(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let since = |(key, count): (&String, &u64)| {
        (key.clone(), count.saturating_sub(before.get(key).copied().unwrap_or_default()))
    };
    after.iter().map(since).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn samples_are_summed_by_the_labels_that_count() {
        let page = "# TYPE apiserver_request_total counter\n\
            apiserver_request_total{code=\"200\",resource=\"nodes\",subresource=\"status\",verb=\"PATCH\"} 3\n\
            apiserver_request_total{code=\"409\",resource=\"nodes\",subresource=\"status\",verb=\"PATCH\"} 1\n\
            apiserver_request_total{code=\"200\",resource=\"\",subresource=\"\",verb=\"GET\"} 9\n\
            skysail_provider_calls_total{provider=\"sim\",function=\"load-balancers.ensure\",outcome=\"ok\"} 5\n";
        let counters = Counters::parse(page);
        assert_eq!(counters.api_requests(), [("PATCH nodes/status".to_owned(), 4)].into());
        assert_eq!(counters.provider_calls(), [("ensure".to_owned(), 5)].into());
    }
}
