//! The only way out of the sandbox: one judged, bounded, accounted exchange at a time, or several in parallel.
//!
//! Flow of one request, in this order; whatever fails first is the answer:
//! 1. the budget of the call gives a request ([`HttpBudget`]);
//! 2. URL, method and headers are read, strictly (`malformed`);
//! 3. the operator's rules judge origin, method and path, and an address that stands in the URL ([`crate::egress`], `forbidden`);
//! 4. the credential is looked up and its origins are judged ([`crate::credentials`]);
//! 5. sizes, then the provider's rate, then the call's concurrency (`limited`, or a wait);
//! 6. the credential is added, last, and the request goes to a connection whose peer address was judged when it was made;
//! 7. the answer is read up to its bounds while it is decompressed, and every value of a credential in it is redacted.
//!
//! It follows no redirect, keeps no cookie, asks no proxy, and sends nothing twice, with one exception that is the transport's own: a
//! request on a reused connection that the peer had closed before a single byte of the request was written goes to a fresh one, and
//! an HTTP/2 stream that the peer refused unprocessed is sent once more. In both cases the peer has said that it did nothing.
//!
//! Must not know wasm. Dropping the future of a request ends its exchange.

mod budget;
mod limits;
mod message;

pub use budget::{HttpBudget, HttpUsage};
pub use limits::HttpLimits;
pub use message::{Failure, FailureKind, HttpRequest, HttpResponse};
