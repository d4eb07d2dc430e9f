//! Swaps from each source while calls run: the time of a swap, failed calls, and growth of memory.
//!
//! And the time until a killed manager serves again while its registry is unavailable.
//!
//! The slot, the sources and the compile jail are those of the manager. They run in this process,
//! so that the measured time contains only the swap; the jail's child is the manager's executable,
//! as in production.

mod calls;
mod figures;
mod memory;
mod place;
mod reference;
mod relay;
mod releases;
mod report;
mod restart;
mod run;
mod world;

pub use self::{
    figures::{Figures, Restart, Shares, Spread},
    place::Source,
    reference::{REFERENCE, reference_main},
    report::{insert, markdown},
    restart::restart,
    run::{RunOptions, swaps},
};
