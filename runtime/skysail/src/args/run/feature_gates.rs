//! The flag `--feature-gates`, with upstream's names, stages and rules.

use clap::Args;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

/// A feature behind a gate. All features are alpha now, so they are off by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Serves the webhooks that providers export.
    CloudControllerManagerWebhook,
    /// Reconciles routes when nodes change, and also with a long period.
    CloudControllerManagerWatchBasedRoutesReconciliation,
}

const FEATURES: [Feature; 2] =
    [Feature::CloudControllerManagerWebhook, Feature::CloudControllerManagerWatchBasedRoutesReconciliation];
/// The gate of all alpha features that no entry names.
const ALL_ALPHA: &str = "AllAlpha";
/// The gate of all beta features that no entry names; there is no beta feature now.
const ALL_BETA: &str = "AllBeta";

impl Feature {
    const fn name(self) -> &'static str {
        match self {
            Self::CloudControllerManagerWebhook => "CloudControllerManagerWebhook",
            Self::CloudControllerManagerWatchBasedRoutesReconciliation => {
                "CloudControllerManagerWatchBasedRoutesReconciliation"
            }
        }
    }
}

const HELP: &str = "Features to enable or disable, as NAME=true or NAME=false, separated by commas: \
    CloudControllerManagerWebhook, CloudControllerManagerWatchBasedRoutesReconciliation (both alpha, off by default), \
    AllAlpha, AllBeta";

/// `NAME=BOOL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    name: &'static str,
    on: bool,
}

/// The gates.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generic flags")]
pub(crate) struct FeatureGates {
    /// Features to enable or disable.
    #[arg(long, help = HELP, value_name = "LIST", value_delimiter = ',', value_parser = setting)]
    feature_gates: Vec<Setting>,
}

impl FeatureGates {
    /// Whether a feature is on: the last entry with its name decides, else the last `AllAlpha`.
    pub(crate) fn enabled(&self, feature: Feature) -> bool {
        let last =
            |name| self.feature_gates.iter().rev().find(|setting| setting.name == name).map(|setting| setting.on);
        last(feature.name()).or_else(|| last(ALL_ALPHA)).unwrap_or(false)
    }

    /// Registers upstream's metric of the gates.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let family = Family::<GateLabels, Gauge>::default();
        let count = |name, stage, on| {
            family.get_or_create(&GateLabels { name, stage }).set(i64::from(on));
        };
        for feature in FEATURES {
            count(feature.name(), "ALPHA", self.enabled(feature));
        }
        for (name, stage) in [(ALL_ALPHA, "ALPHA"), (ALL_BETA, "BETA")] {
            count(name, stage, self.feature_gates.iter().rev().find(|it| it.name == name).is_some_and(|it| it.on));
        }
        registry.register("kubernetes_feature_enabled", "Whether a feature gate is on, by name and stage", family);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    name: &'static str,
    stage: &'static str,
}

fn setting(text: &str) -> Result<Setting, String> {
    let names = || FEATURES.iter().map(|feature| feature.name()).chain([ALL_ALPHA, ALL_BETA]);
    let Some((name, value)) = text.split_once('=') else {
        return Err("write NAME=true or NAME=false".to_owned());
    };
    let (name, value) = (name.trim(), value.trim());
    let known = names().find(|known| *known == name);
    let name = known.ok_or_else(|| {
        let all: Vec<_> = names().collect();
        format!("there is no feature {name:?}; there are {}", all.join(", "))
    })?;
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Setting { name, on: true }),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Setting { name, on: false }),
        _ => Err(format!("{name} is true or false, not {value:?}")),
    }
}
