//! The cloud controllers on kube-rs. They create load balancers for Services, initialize and label
//! nodes from the data of their machines, delete nodes whose machines do not exist any more, and
//! create routes for pods.
//!
//! A controller knows providers by the traits of `skysail_provider` only. One [`Manager`] runs all
//! controllers for all [`Providers`] of the process.
//!
//! # Structure
//! `lanes` has a lane for each provider and follows the edits of an operator. `watch` caches the
//! objects, which `trim` reduces to the fields in use, and reports changes → `triggers` turns a
//! change into keys → `queue` (one for each provider and controller) releases a key when it is due
//! → `service`, `node`, `node_lifecycle` and `route` are lists of steps, most of them pure →
//! `report` reports the outcome. `nodes` assigns the nodes to providers by `ownership` and shares
//! one node set with all Services of a provider. `dry_run` runs the same steps once, and holds back
//! their writes. `explain` tells a person why a Service has, or has not, its load balancer; no
//! decision reads what only `explain` needs.
//!
//! # Rules
//! The controllers do not depend on WebAssembly. A reconcile neither sleeps nor retries. No
//! controller acts on an object that no provider, or more than one, owns. No answer but `NotFound`
//! means that a machine or load balancer does not exist.

mod backoff;
mod clients;
mod cluster_ips;
mod context;
mod convert;
mod deadlines;
mod describe;
mod dry_run;
mod emptied;
mod error;
mod events;
mod explain;
mod findings;
mod held;
mod held_deletions;
mod labels;
mod lane;
mod lanes;
mod last_outcomes;
mod ledger;
mod manager;
mod metrics;
pub mod names;
mod node;
mod node_lifecycle;
mod nodes;
mod ownership;
mod patch;
mod pauses;
mod persistent_volumes;
mod progress;
mod provider_addresses;
mod providers;
mod queue;
mod report;
mod retained;
mod route;
mod service;
mod service_locks;
mod service_spec;
mod settings;
mod starts;
mod switched_off;
mod taints;
mod throttle;
mod triggers;
mod trim;
mod watch;
mod watch_backoff;

pub use backoff::SLOW_RESYNC;
pub use clients::Clients;
pub use convert::node as provider_node;
pub use deadlines::{ApiResponse, CONNECTION_IDLE, Deadlines};
pub use dry_run::{Snapshot, dry_run};
pub use events::{Events, Notice, Recorder, Waiting};
pub use explain::{
    Explainer, LastOutcome, LoadBalancerRecord, PlannedStep, QueuePlace, QueueStatus, ServiceExplanation,
    ServiceObject, ServiceOwner, ServiceProvider, Unexplained,
};
pub use findings::{Finding, Findings};
pub use held::{DryRunObject, ObjectWrite};
pub use ledger::Ledger;
pub use manager::{Ending, Manager, ManagerError};
pub use metrics::ControllerMetrics;
pub use persistent_volumes::{PersistentVolumeLabeler, Review, provider_volume};
pub use progress::{FIRST_LIST_MAX, Progress};
pub use provider_addresses::{CidrError, ProviderAddresses};
pub use providers::{DeletionPolicy, ProviderEntry, Providers, ProvidersError};
pub use report::Activity;
pub use retained::{RetainedKey, RetainedLoadBalancer, RetainedRecords};
pub use route::{ClusterCidrError, parse_cluster_cidr};
pub use service::orphans::{AskedServices, Orphan, Wanting, find_orphans, may_want_load_balancers, orphan_notice};
pub use service_spec::provider_service;
pub use settings::{ControllerSettings, EnabledControllers};
pub use throttle::{Rate, Throttle, ThrottleLayer};
pub use watch_backoff::WatchBackoff;
