//! Names into addresses, and how many look-ups one provider may have under way. Must not judge addresses.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs as _},
    sync::Arc,
};

use async_trait::async_trait;
use tokio::{sync::Semaphore, task::spawn_blocking};

/// Look-ups of one provider under way at once.
///
/// Each holds a thread until the name servers answer or the system gives them up, which nothing ends sooner, and all providers share a
/// pool of 512 threads: whoever asks for names that are never answered may hold a few of them. A provider needs one or two names.
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

/// The resolver of the operating system, search list and `/etc/hosts` included: whatever it says is judged.
///
/// Each has a bound of its own for its look-ups under way, so every provider has one to itself. Further look-ups wait.
#[derive(Debug)]
pub struct SystemResolver {
    places: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(LOOK_UPS_MAX)) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let name = name.to_owned();
        // The absolute form would be wanted against search lists, but /etc/hosts knows no trailing dots.
        self.run(move || Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())).await
    }
}

impl SystemResolver {
    /// Runs a look-up that blocks. The place is given back when it *returns*: a request that ends earlier ends the wait, not the look-up.
    ///
    /// # Cancel safety
    /// Dropping the future leaves a look-up that has begun to its end, and none that has not.
    async fn run<T: Send + 'static>(&self, look_up: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let looked_up = spawn_blocking(move || {
            let result = look_up();
            drop(place);
            result
        });
        looked_up.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, pin::pin, sync::mpsc};

    use futures::{FutureExt as _, poll};

    use super::{LOOK_UPS_MAX, Resolver as _, SystemResolver};

    #[tokio::test]
    async fn a_look_up_that_nobody_waits_for_any_more_keeps_its_place_until_it_returns() {
        let resolver = SystemResolver::default();
        let mut name_servers = Vec::new();
        for _ in 0..LOOK_UPS_MAX {
            let (answer, unanswered) = mpsc::channel();
            name_servers.push(answer);
            // Polled once, which begins it, and dropped, as when the request's time is over.
            let look_up = resolver.run(move || Ok(unanswered.recv().is_ok()));
            assert!(look_up.now_or_never().is_none());
        }
        assert_eq!(resolver.places.available_permits(), 0);
        let mut next = pin!(resolver.run(|| Ok("looked up")));
        assert!(poll!(&mut next).is_pending());
        name_servers.pop().unwrap().send(()).unwrap();
        assert_eq!(next.await.unwrap(), "looked up");
    }

    #[tokio::test]
    async fn the_system_knows_addresses() {
        let addresses = SystemResolver::default().resolve("127.0.0.1").await.unwrap();
        assert_eq!(addresses, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }
}
