//! The end-to-end tests. Each sets up its environment, and fails if it cannot.

mod air_gap;
mod as_users_see_it;
mod busy_api_server;
mod catalogue;
mod chart;
mod cloud_alone;
mod config_map;
mod deletion_budget;
mod documents;
mod election;
mod explain;
mod first_signal;
mod image;
mod killed;
mod leaks;
mod manifests;
mod new_provider;
mod node_addresses;
mod orphans;
mod other_tools;
mod pauses;
mod plan;
mod provider_definition;
mod provider_resources;
mod quickstart;
mod real_incus;
mod real_mounts;
mod real_registry;
mod release;
mod retained;
mod silent_api_server;
mod simulated;
mod support_bundle;
mod traces;
mod volume_labels;
mod write_a_provider;

/// A lock for tests that measure the time of a hand-over or that use all cores.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
