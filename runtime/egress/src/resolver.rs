//! Names into addresses, and how many look-ups one provider may have under way. Must not judge
//! addresses.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs as _},
};

use async_trait::async_trait;

use crate::blocking::Blocking;

/// Look-ups of one provider under way at once.
///
/// Each holds a thread until the name servers answer or the system gives them up, which nothing
/// ends sooner, and all providers share a pool of 512 threads: a guest that asks for names that are
/// never answered may hold a few of them. A provider needs one or two names.
const LOOK_UPS_MAX: usize = 8;

/// Turns a name into addresses. The system's is [`SystemResolver`]; tests bring their own.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of `name`; an error and an empty answer are the same.
    ///
    /// # Errors
    /// The name does not exist, or the look-up failed.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system, search list and `/etc/hosts` included: whatever it says is
/// judged.
///
/// Each has a bound of its own for its look-ups under way, so every provider has one to itself.
/// Further look-ups wait.
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
        // The absolute form would be wanted against search lists, but /etc/hosts knows no trailing
        // dots.
        let look_up = move || Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect());
        self.look_ups.run(look_up).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Resolver as _, SystemResolver};

    #[tokio::test]
    async fn the_system_knows_addresses() {
        let addresses = SystemResolver::default().resolve("127.0.0.1").await.unwrap();
        assert_eq!(addresses, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }
}
