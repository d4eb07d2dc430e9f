//! The cloud as a provider meets it: over HTTP, and through its virtual servers.

mod client;
mod data_plane;
mod document;
mod http;
