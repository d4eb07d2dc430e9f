//! The data plane: a virtual server's listener, which carries real TCP from an elastic IP to a real
//! server.
//!
//! Connects to loopback addresses only (the caller checks), so that no client can reach another
//! network through the simulated cloud.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdTcpListener},
    sync::{Arc, Mutex, PoisonError},
};

use ipnet::IpNet;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Duration, Instant, sleep, timeout},
};

use super::{
    error::CloudError,
    model::{Backend, Health, RealServer},
};

/// The maximum number of connections of one virtual server; further ones wait in the kernel's
/// queue. Two sockets each: half of the usual limit of 1,024 open files per listener would be used
/// up by fewer, but demonstrations raise that limit, and tests stay far below.
pub(super) const CONNECTIONS_MAX: usize = 1_024;
/// The maximum number of backends tried for one connection, to bound the wait of a client.
const ATTEMPTS_MAX: usize = 8;
/// Connect timeout: on loopback a backend accepts at once or never.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a failed backend is skipped.
const UNHEALTHY_FOR: Duration = Duration::from_secs(5);
/// The maximum number of clients with affinity; beyond it the entry that was unused for longest is
/// dropped.
const STICKY_CLIENTS_MAX: usize = 1_024;
/// Pause after a failed `accept` (no file descriptors): without it the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The rules for connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) backends: Vec<Backend>,
    /// Empty means every client.
    pub(super) allowed: Vec<IpNet>,
    /// Zero switches affinity off.
    pub(super) affinity: Duration,
}

/// A listening socket and its connections; dropping it ends all of them.
#[derive(Debug)]
pub(super) struct Listener {
    balancer: Arc<Mutex<Balancer>>,
    tasks: JoinSet<()>,
}

/// The choice of a backend, without I/O.
#[derive(Debug, Default)]
struct Balancer {
    rules: Rules,
    /// Number of connections, the position of the round-robin.
    turn: usize,
    seen: HashMap<Backend, (bool, Instant)>,
    sticky: HashMap<IpAddr, (Backend, Instant)>,
}

impl Listener {
    /// When this returns, clients can connect. Must be called within a tokio runtime.
    pub(super) fn bind(address: SocketAddr, rules: Rules) -> Result<Self, CloudError> {
        let listener = listen(address)?;
        let balancer = Arc::new(Mutex::new(Balancer { rules, ..Balancer::default() }));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_all(listener, Arc::clone(&balancer)));
        Ok(Self { balancer, tasks })
    }

    /// Sets the rules for new connections; open connections stay.
    pub(super) fn set_rules(&self, rules: Rules) {
        let mut balancer = lock(&self.balancer);
        balancer.seen.retain(|backend, _| rules.backends.contains(backend));
        balancer.sticky.retain(|_, (backend, _)| rules.backends.contains(backend));
        balancer.rules = rules;
    }

    pub(super) fn real_servers(&self) -> Vec<RealServer> {
        let balancer = lock(&self.balancer);
        let now = Instant::now();
        let backends = balancer.rules.backends.iter();
        backends
            .map(|backend| RealServer {
                address: backend.address,
                port: backend.port,
                health: balancer.health(*backend, now),
            })
            .collect()
    }

    /// Number of real servers.
    pub(super) fn backends(&self) -> usize {
        lock(&self.balancer).rules.backends.len()
    }

    /// Whether one of the real servers, which are sorted, has this address.
    pub(super) fn leads_to(&self, address: Ipv4Addr) -> bool {
        let balancer = lock(&self.balancer);
        let backends = &balancer.rules.backends;
        let first = backends.partition_point(|backend| backend.address < address);
        backends.get(first).is_some_and(|backend| backend.address == address)
    }

    /// Ends every connection; when this returns, the port is free.
    pub(super) async fn close(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A non-blocking socket that listens.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, CloudError> {
    let bind = || {
        let listener = StdTcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    bind().map_err(|source| CloudError::listen(address, source))
}

fn lock(balancer: &Mutex<Balancer>) -> std::sync::MutexGuard<'_, Balancer> {
    balancer.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept_all(listener: TcpListener, balancer: Arc<Mutex<Balancer>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((client, peer)) if lock(&balancer).admits(peer.ip()) => {
                    connections.spawn(carry(client, peer.ip(), Arc::clone(&balancer)));
                }
                Ok((refused, peer)) => {
                    tracing::debug!(%peer, "connection refused: the client is outside the allowed sources");
                    drop(refused);
                }
                Err(error) => {
                    tracing::warn!(%error, "virtual server cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Forwards one connection to the first backend that accepts it; without one the client's
/// connection is closed.
async fn carry(mut client: TcpStream, peer: IpAddr, balancer: Arc<Mutex<Balancer>>) {
    let candidates = lock(&balancer).candidates(peer, Instant::now());
    for backend in candidates {
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect((backend.address, backend.port))).await;
        let Ok(Ok(mut server)) = connected else {
            lock(&balancer).saw(backend, peer, false, Instant::now());
            continue;
        };
        lock(&balancer).saw(backend, peer, true, Instant::now());
        if let Err(error) = copy_bidirectional(&mut client, &mut server).await {
            tracing::debug!(%peer, %error, "connection broke");
        }
        return;
    }
}

impl Balancer {
    fn admits(&self, peer: IpAddr) -> bool {
        self.rules.allowed.is_empty() || self.rules.allowed.iter().any(|range| range.contains(&peer))
    }

    fn health(&self, backend: Backend, now: Instant) -> Health {
        match self.seen.get(&backend) {
            Some((true, _)) => Health::Healthy,
            Some((false, when)) if now - *when < UNHEALTHY_FOR => Health::Unhealthy,
            _ => Health::Unknown,
        }
    }

    /// Backends in the order of attempts: the client's own one, then the others in turn, unhealthy
    /// ones last.
    fn candidates(&mut self, peer: IpAddr, now: Instant) -> Vec<Backend> {
        self.turn = self.turn.wrapping_add(1);
        let mut backends = self.rules.backends.clone();
        if let Some(start) = self.turn.checked_rem(backends.len()) {
            backends.rotate_left(start);
        }
        let (mut order, unhealthy): (Vec<_>, Vec<_>) =
            backends.into_iter().partition(|backend| self.health(*backend, now) != Health::Unhealthy);
        let own = self.sticky.get(&peer).filter(|(_, last)| now - *last < self.rules.affinity).map(|(own, _)| *own);
        if let Some(place) = order.iter().position(|backend| Some(*backend) == own)
            && let Some(front) = order.get_mut(..=place)
        {
            front.rotate_right(1);
        }
        order.extend(unhealthy);
        order.truncate(ATTEMPTS_MAX);
        order
    }

    fn saw(&mut self, backend: Backend, peer: IpAddr, accepted: bool, now: Instant) {
        if self.rules.backends.contains(&backend) {
            self.seen.insert(backend, (accepted, now));
        }
        if accepted && !self.rules.affinity.is_zero() {
            self.sticky.insert(peer, (backend, now));
            if self.sticky.len() > STICKY_CLIENTS_MAX
                && let Some(oldest) = self.sticky.iter().min_by_key(|(_, (_, last))| *last).map(|(peer, _)| *peer)
            {
                self.sticky.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::time::{Duration, Instant};

    use super::{Balancer, Rules, UNHEALTHY_FOR};
    use crate::cloud::model::Backend;

    fn backend(last: u8) -> Backend {
        Backend { address: Ipv4Addr::new(127, 89, 0, last), port: 30_000 }
    }

    fn balancer(affinity: Duration) -> Balancer {
        let rules = Rules { backends: [1, 2, 3].map(backend).to_vec(), allowed: Vec::new(), affinity };
        Balancer { rules, ..Balancer::default() }
    }

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn backends_take_turns_and_a_failed_one_rests() {
        let mut balancer = balancer(Duration::ZERO);
        let now = Instant::now();
        let first: Vec<_> = (0..4).map(|_| balancer.candidates(PEER, now)[0]).collect();
        assert_eq!(first, [backend(2), backend(3), backend(1), backend(2)]);
        balancer.saw(backend(1), PEER, false, now);
        for _ in 0..6 {
            let order = balancer.candidates(PEER, now);
            assert_eq!((order.len(), order[2]), (3, backend(1)));
        }
        let later = now + UNHEALTHY_FOR;
        assert!((0..3).any(|_| balancer.candidates(PEER, later)[0] == backend(1)));
    }

    #[test]
    fn a_client_keeps_its_backend_for_the_time_of_affinity() {
        let mut balancer = balancer(Duration::from_secs(10));
        let now = Instant::now();
        balancer.saw(backend(3), PEER, true, now);
        for _ in 0..3 {
            assert_eq!(balancer.candidates(PEER, now)[0], backend(3));
        }
        let later = now + Duration::from_secs(10);
        assert!((0..3).any(|_| balancer.candidates(PEER, later)[0] != backend(3)));
    }

    #[test]
    fn only_allowed_sources_are_admitted() {
        let mut balancer = balancer(Duration::ZERO);
        assert!(balancer.admits(PEER));
        balancer.rules.allowed = vec!["127.0.1.0/24".parse().unwrap()];
        assert!(!balancer.admits(PEER));
        assert!(balancer.admits("127.0.1.9".parse().unwrap()));
    }
}
