//! DNS look-ups, and the limit of concurrent look-ups of one provider. Must not decide which
//! addresses are allowed.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs as _},
};

use async_trait::async_trait;

use crate::blocking::Blocking;

/// Concurrent look-ups of one provider.
///
/// A look-up holds a thread until a name server answers or the system's resolver times out, and
/// cannot be cancelled. All providers share a pool of 512 threads, so a guest that requests names
/// without an answer can hold only a few of them. A provider needs one or two names.
const LOOK_UPS_MAX: usize = 8;

/// Resolves a name. [`SystemResolver`] is the operating system's resolver; tests have others.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of `name`. Callers treat an empty answer as an error.
    ///
    /// # Errors
    /// The name does not exist, or the look-up failed.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system, search list and `/etc/hosts` included. Callers check every
/// address that it returns.
///
/// Each resolver has its own limit of concurrent look-ups, so each provider has a resolver of its
/// own. Further look-ups wait.
#[derive(Debug)]
pub struct SystemResolver {
    look_ups: Blocking,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { look_ups: Blocking::new(LOOK_UPS_MAX) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let name = name.to_owned();
        // The name gets no trailing dot. A dot would switch search domains off, but names in
        // /etc/hosts have none and would not be found.
        let look_up = move || Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect());
        self.look_ups.run(look_up).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Resolver as _, SystemResolver};

    #[tokio::test]
    async fn an_address_resolves_to_itself() {
        let addresses = SystemResolver::default().resolve("127.0.0.1").await.unwrap();
        assert_eq!(addresses, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }
}
