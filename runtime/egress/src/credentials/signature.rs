//! Signatures of requests, by keys that never leave the process.
//!
//! Must not send requests, and must not read the time: the caller passes it. No error contains a
//! value.

mod aws;
mod cloudstack;

pub(super) use aws::{AwsKeys, AwsSigner, HEADERS as AWS_HEADERS};
pub(super) use cloudstack::CloudStackKeys;

#[cfg(test)]
mod tests;
