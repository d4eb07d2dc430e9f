//! The cloud from the view of a provider: over HTTP, and through its virtual servers.

mod client;
mod data_plane;
mod document;
mod http;
