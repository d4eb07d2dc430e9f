//! Skysail and a manager in Go over upstream's controllers, with the same simulated cloud and a
//! real kube-apiserver, one after the other in one script.
//!
//! Each run has an API server of its own, empty, and a cloud of its own in this process; only the
//! manager is measured. `peer/` has the Go program.

mod cluster;
mod contestant;
mod counters;
mod figures;
mod plot;
mod process;
mod report;
mod run;
mod scenarios;
mod world;

pub use self::{
    contestant::{Contestant, Programs},
    figures::{Figures, Growth, Record, Scenario},
    plot::growth_plot,
    report::{growth_table, markdown},
    run::{Task, measure},
    scenarios::{measure_deletion, measure_replacement},
    world::Size,
};
