//! The interfaces of the package `skysail:legacy`, which no controller calls: only tools do.

pub use crate::bindings::{
    clusters::Guest as Clusters,
    node_legacy::Guest as NodeLegacy,
    zones::{Guest as Zones, Zone},
};
