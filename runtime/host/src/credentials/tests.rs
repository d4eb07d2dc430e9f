//! Tests of `crate::credentials`.
