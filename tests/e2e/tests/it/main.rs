//! The tests from end to end. Each sets up its environment, and fails where it cannot.

mod as_users_see_it;
mod config_map;
mod election;
mod killed;
mod manifests;
mod node_addresses;
mod orphans;
mod other_tools;
mod provider_definition;
mod provider_resources;
mod real_incus;
mod real_mounts;
mod real_registry;
mod simulated;
mod volume_labels;

/// Held by a test that measures how long a hand-over takes, and by one that leaves no core to
/// others.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
