//! One release after another from each source, under calls: how long a swap takes, whether a call
//! fails, whether memory stays.
//!
//! And how soon a manager serves again that was killed while its registry was away.
//!
//! The slot, the sources and the compile jail are the manager's own. What they run in is this
//! process, so that nothing but the swap is between an offer and the look at the slot's status; the
//! jail's child is the manager's executable, as users have it.

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
    run::{Task, swaps},
};
