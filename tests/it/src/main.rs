//! Tests of real components in the real host, in one binary. `make guests` builds the components; a missing one is a failure.

mod components;
mod jail;
mod probes;
mod provider;
mod simcloud;
mod swap;
