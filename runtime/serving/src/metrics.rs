//! Metrics of the process, its build, its running controllers and its requests to the API server.
//! The names are upstream's.

mod process;
mod rest_client;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};

pub use process::Process;
pub use rest_client::{RestClientLayer, RestClientMetrics, RestClientService};

/// The manager's name in upstream's metrics.
const MANAGER: &str = "cloud-controller-manager";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunningLabels {
    name: String,
    manager: &'static str,
}

/// The controllers of this process: 1 while a controller runs.
#[derive(Clone, Debug, Default)]
pub struct RunningControllers(Family<RunningLabels, Gauge>);

impl RunningControllers {
    /// Creates the metric and registers it.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let running = Self::default();
        registry.register("running_managed_controllers", "Whether a controller runs", running.0.clone());
        running
    }

    /// Records that a controller started or ended, by upstream's name of the controller.
    pub fn set(&self, name: &str, running: bool) {
        let labels = RunningLabels { name: name.to_owned(), manager: MANAGER };
        self.0.get_or_create(&labels).set(running.into());
    }
}

/// Registers the version of this program.
pub fn register_build_info(registry: &mut Registry, version: &'static str) {
    registry.register("skysail_build", "Version of this program", Info::new([("version", version)]));
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::{RunningControllers, register_build_info};

    #[test]
    fn the_metrics_of_running_controllers_and_of_the_build_have_upstreams_names() {
        let mut registry = Registry::default();
        let running = RunningControllers::register(&mut registry);
        register_build_info(&mut registry, "1.2.3");
        running.set("service", true);
        running.set("route", true);
        running.set("route", false);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"running_managed_controllers{name="service",manager="cloud-controller-manager"} 1"#,
            r#"running_managed_controllers{name="route",manager="cloud-controller-manager"} 0"#,
            r#"skysail_build_info{version="1.2.3"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
