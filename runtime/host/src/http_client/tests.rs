//! Tests of `crate::http_client`.
