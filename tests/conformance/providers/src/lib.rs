//! One suite for every provider: a component in the host, its cloud, and between both a proxy that
//! counts, refuses and loses requests.
//!
//! A [`cloud::Cloud`] starts a cloud, or an account of its own in one, and says what the suite has
//! to know about it. Each function of [`suite`] is one requirement that every provider has to meet;
//! `tests/it` runs all of them against all clouds.

pub mod cloud;
pub mod clouds;
pub mod component;
pub mod example;
#[expect(
    clippy::indexing_slicing,
    clippy::too_many_arguments,
    reason = "a fake for tests: it reads and writes JSON, and a panic is how a test fails"
)]
pub mod hetzner_cloud;
pub mod leaks;
pub mod process;
pub mod proxy;
pub mod published;
pub mod suite;
pub mod vendor;
pub mod world;
