//! The operator's proxy, which resolves the names.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::policy::EgressPolicy;

use super::{
    Answers, FailureKind, Server, client, credentials, get, ok, send,
    tls::{Authority, server_config},
};

/// A proxy that tunnels to one server, and answers requests that are not tunnelled itself.
struct Proxy {
    address: SocketAddr,
    /// The first line of each request.
    lines: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Without a server, every tunnel is refused.
    async fn to(server: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream, server, Arc::clone(&kept)));
            }
        });
        Self { address, lines, _tasks: tasks }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    fn egress(&self, ca: &str) -> String {
        let ca = if ca.is_empty() { String::new() } else { format!(r#", "caBundle": {{"pem": {ca:?}}}"#) };
        format!(
            r#"{{"rules": [{{"origins": ["https://cloud.example.com", "http://cloud.example.com"]}}],
                "proxy": "http://{}", "allowCidrs": ["127.0.0.1/32"]{ca}}}"#,
            self.address
        )
    }
}

async fn connection(mut stream: TcpStream, server: Option<SocketAddr>, lines: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
    lines.lock().unwrap().push(line.clone());
    let answer: &[u8] = match (line.starts_with("CONNECT "), server) {
        (true, Some(_)) => b"HTTP/1.1 200 Connection established\r\n\r\n",
        (true, None) => b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
        (false, _) => b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nthe proxy",
    };
    stream.write_all(answer).await.unwrap();
    if let (true, Some(server)) = (line.starts_with("CONNECT "), server) {
        let mut server = TcpStream::connect(server).await.unwrap();
        // The end of a test cuts the tunnel.
        drop(copy_bidirectional(&mut stream, &mut server).await);
    }
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_and_the_proxy_resolves_the_name() {
    let authority = Authority::new("proxied");
    let server = Server::start_tls(server_config(&authority, "cloud.example.com", None), |_| ok("the cloud")).await;
    let proxy = Proxy::to(Some(server.address)).await;
    let resolver = Answers::new(&[]);
    let client = client(&proxy.egress(&authority.pem()), credentials("{}"), Arc::clone(&resolver));
    assert_eq!(send(&client, get("https://cloud.example.com/v1")).await.unwrap().body, "the cloud");
    assert_eq!(proxy.lines(), ["CONNECT cloud.example.com:443 HTTP/1.1"]);
    assert_eq!(resolver.look_ups(), 0);
    assert!(server.requests()[0].starts_with("GET /v1 HTTP/1.1"), "{:?}", server.requests());
}

#[tokio::test]
async fn a_request_without_tls_names_the_whole_url() {
    let proxy = Proxy::to(None).await;
    let client = client(&proxy.egress(""), credentials("{}"), Answers::new(&[]));
    assert_eq!(send(&client, get("http://cloud.example.com/v1?a=b")).await.unwrap().body, "the proxy");
    assert_eq!(proxy.lines(), ["GET http://cloud.example.com/v1?a=b HTTP/1.1"]);
}

#[tokio::test]
async fn rules_and_addresses_in_urls_are_checked_before_the_proxy() {
    let proxy = Proxy::to(None).await;
    let client = client(&proxy.egress(""), credentials("{}"), Answers::new(&[]));
    for url in ["https://other.example.com/", "http://127.0.0.2/", "http://169.254.169.254/latest/meta-data/"] {
        assert_eq!(send(&client, get(url)).await.unwrap_err().kind, FailureKind::Forbidden, "{url}");
    }
    assert_eq!(proxy.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_failure_of_the_proxy_names_the_proxy() {
    let proxy = Proxy::to(None).await;
    let egress = proxy.egress("");
    let name = format!("connect through proxy http://{}", proxy.address);
    let client = client(&egress, credentials("{}"), Answers::new(&[]));
    let failure = send(&client, get("https://cloud.example.com/")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unreachable);
    assert!(failure.message.contains(&name), "{failure}");
    drop(proxy);
    for url in ["https://cloud.example.com/", "http://cloud.example.com/"] {
        let failure = send(&client, get(url)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert!(failure.message.contains(&name), "{failure}");
    }
}

#[tokio::test]
async fn a_proxy_at_a_private_address_needs_its_entry_in_the_cidrs() {
    for address in ["127.0.0.1:3128", "169.254.169.254", "10.0.0.1:3128"] {
        let spec = format!(r#"{{"proxy": "http://{address}"}}"#);
        let error = EgressPolicy::new(&serde_json::from_str(&spec).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("proxy: "), "{error}");
    }
    let proxy = Proxy::to(None).await;
    let egress = format!(
        r#"{{"rules": [{{"origins": ["http://cloud.example.com"]}}], "proxy": "http://proxy.example.com:{}"}}"#,
        proxy.address.port()
    );
    let client = client(&egress, credentials("{}"), Answers::new(&[&["127.0.0.1"]]));
    let failure = send(&client, get("http://cloud.example.com/")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Forbidden, "{failure}");
    assert_eq!(proxy.lines(), Vec::<String>::new());
}
