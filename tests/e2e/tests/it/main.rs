//! The tests from end to end. Each sets up its environment, and fails where it cannot.

mod as_users_see_it;
mod election;
mod manifests;
mod node_addresses;
mod orphans;
mod real_incus;
mod simulated;
mod volume_labels;
