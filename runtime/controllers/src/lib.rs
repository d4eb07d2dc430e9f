//! The cloud controllers on kube-rs: Services get load balancers, nodes get what their machines
//! are, and go with them; their pods get routes.
//!
//! A controller knows providers by the traits of `skysail_provider` and nothing of what stands
//! behind them. One [`Manager`] runs all controllers for all [`Providers`] of the process.
//!
//! # How it hangs together
//! `lanes` has a lane for each provider, and follows the edits of an operator. `watch` keeps the
//! objects, cut down by `trim`, and reports changes → `triggers` turns a change into keys → `queue`
//! (one for each provider and controller) runs a key when it may → `service`, `node`,
//! `node_lifecycle` and `route` are lists of steps, most of them pure → `report` says what came of
//! it. `nodes` sorts the nodes by `ownership` and shares one set of them with all Services of a
//! provider.
//!
//! # What it must not do
//! Know WebAssembly. Sleep or retry inside a reconcile. Act on an object that no provider, or more
//! than one, owns. Take any answer but `NotFound` for "gone".

mod backoff;
mod clients;
mod cluster_ips;
mod context;
mod convert;
mod describe;
mod error;
mod events;
mod findings;
mod labels;
mod lane;
mod lanes;
mod ledger;
mod manager;
mod metrics;
pub mod names;
mod node;
mod node_lifecycle;
mod nodes;
mod ownership;
mod patch;
mod persistent_volumes;
mod progress;
mod provider_addresses;
mod providers;
mod queue;
mod report;
mod route;
mod service;
mod service_spec;
mod settings;
mod starts;
mod taints;
mod triggers;
mod trim;
mod turns;
mod watch;
mod watch_backoff;

pub use clients::Clients;
pub use convert::node as provider_node;
pub use events::{Events, Notice, Recorder, Waiting};
pub use findings::{Finding, Findings};
pub use ledger::Ledger;
pub use manager::{Ending, Manager, ManagerError};
pub use metrics::ControllerMetrics;
pub use persistent_volumes::{PersistentVolumeLabeler, Review, provider_volume};
pub use progress::Progress;
pub use provider_addresses::{CidrError, ProviderAddresses};
pub use providers::{ProviderEntry, Providers, ProvidersError};
pub use report::Activity;
pub use route::{ClusterCidrError, parse_cluster_cidr};
pub use service::orphans::{find_orphans, may_want_load_balancers, orphan_notice};
pub use service_spec::provider_service;
pub use settings::{ControllerSettings, EnabledControllers};
pub use watch_backoff::WatchBackoff;
