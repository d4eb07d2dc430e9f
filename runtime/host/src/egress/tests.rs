//! Tests of `crate::egress`.
