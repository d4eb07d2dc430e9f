//! The controllers tested from outside, with an in-memory Kubernetes API and an in-memory cloud,
//! under a paused clock.
//!
//! A test changes the cluster or the cloud and compares a transcript of the controllers' actions:
//! provider calls, API writes, Events.

#[cfg(test)]
mod addresses;
mod breaker;
mod claims;
mod drift;
#[cfg(test)]
mod dry_run;
mod edits;
#[cfg(test)]
mod explain;
mod fence;
#[cfg(test)]
mod held_deletions;
mod holder;
mod in_flight;
#[cfg(test)]
mod instances_v1;
mod lifecycle;
#[cfg(test)]
mod log_lines;
mod nodes;
#[cfg(test)]
mod not_configured;
mod orphans;
#[cfg(test)]
mod paused;
mod pinned;
#[cfg(test)]
mod progress;
mod providers;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod retained;
#[cfg(test)]
mod rotation;
#[cfg(test)]
mod route_targets;
#[cfg(test)]
mod routes_of_several_providers;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod serial;
mod services;
#[cfg(test)]
mod three_providers;
mod upstream_end_to_end;
#[cfg(test)]
mod upstream_lifecycle;
#[cfg(test)]
mod upstream_nodes;
#[cfg(test)]
mod upstream_routes;
#[cfg(test)]
mod upstream_services;
#[cfg(test)]
mod upstream_services_bad_input;
#[cfg(test)]
mod upstream_services_behaviour;
#[cfg(test)]
mod upstream_services_lessons;
#[cfg(test)]
mod upstream_services_nodes;
#[cfg(test)]
mod work_queues;
