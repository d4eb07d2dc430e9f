//! Connections to a server on loopback that answers each request or none.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Config, api::ListParams, config::ExecConfig};
use rstest::rstest;
use serde_json::json;
use skysail_provider::text::with_causes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use super::EXEC_PLUGIN;
use crate::cluster::Cluster;

/// A server on loopback. It reports the number of the connection for each request that it has read.
struct Server {
    address: std::net::SocketAddr,
    seen: mpsc::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// The first connection gets `first` as its answers, or none at all; all others get an empty
    /// list.
    async fn start(first: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::channel(16);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut connections, numbers) = (JoinSet::new(), AtomicUsize::new(0));
            while let Ok((connection, _)) = listener.accept().await {
                let number = numbers.fetch_add(1, Ordering::SeqCst);
                let answer = if number == 0 { first } else { Some(LIST) };
                connections.spawn(answer_all(connection, number, answer, sender.clone()));
            }
        });
        Self { address, seen, _tasks: tasks }
    }

    async fn client(&self) -> Api<ConfigMap> {
        let config = Config::new(format!("http://{}", self.address).parse().unwrap());
        Api::namespaced(Cluster::at(config).client("test").await.unwrap(), "default")
    }
}

const LIST: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 69\r\n\r\n\
                    {\"apiVersion\":\"v1\",\"kind\":\"ConfigMapList\",\"metadata\":{},\"items\":[]}  ";
const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
const GATEWAY_TIMEOUT: &str = "HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\n\r\n";

async fn answer_all(mut connection: TcpStream, number: usize, answer: Option<&'static str>, seen: mpsc::Sender<usize>) {
    let mut buffer = [0; 8192];
    // Requests of these tests have no body and are sent at once.
    while let Ok(read) = connection.read(&mut buffer).await
        && read > 0
    {
        if seen.send(number).await.is_err() {
            return;
        }
        if let Some(answer) = answer {
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

/// A deadline ends a request by dropping it. That must close the connection.
#[tokio::test]
async fn a_request_that_ended_without_an_answer_leaves_no_dead_connection_to_the_next_one() {
    let mut server = Server::start(None).await;
    let api = server.client().await;
    let lists = Arc::new(tokio::sync::Notify::new());
    let (swallowed, stop) = (api.clone(), Arc::clone(&lists));
    let mut request = JoinSet::new();
    request.spawn(async move {
        let params = ListParams::default();
        tokio::select! {
            answer = swallowed.list(&params) => panic!("answered: {answer:?}"),
            () = stop.notified() => {}
        }
    });
    assert_eq!(server.seen.recv().await, Some(0));
    lists.notify_one();
    request.join_next().await.unwrap().unwrap();
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
    assert_eq!(server.seen.recv().await, Some(1));
}

/// Without a deadline the request would wait for the server for ever.
#[tokio::test]
async fn a_request_that_the_server_reads_and_never_answers_fails_at_its_deadline() {
    let mut server = Server::start(None).await;
    let api = server.client().await;
    let mut request = JoinSet::new();
    request.spawn(async move { api.get("a").await });
    assert_eq!(server.seen.recv().await, Some(0));
    // Nothing happens on the connection any more: the clock moves to the next deadline.
    tokio::time::pause();
    let later_than_every_deadline = Duration::from_mins(10);
    let ended = timeout(later_than_every_deadline, request.join_next()).await.expect("a request must have a deadline");
    let error = ended.unwrap().unwrap().unwrap_err();
    let why = "GET /api/v1/namespaces/default/configmaps/a: the API server did not answer within 30 s; check the \
               network to it";
    assert!(with_causes(&error).contains(why), "{error:?}");
}

#[rstest]
#[case(429, TOO_MANY)]
#[case(503, UNAVAILABLE)]
#[case(504, GATEWAY_TIMEOUT)]
#[tokio::test]
async fn an_answer_with_an_error_is_given_to_the_caller_and_the_request_is_not_sent_again(
    #[case] code: u16,
    #[case] response: &'static str,
) {
    let mut server = Server::start(Some(response)).await;
    let answer = server.client().await.get("a").await;
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == code), "{answer:?}");
    assert_eq!(server.seen.recv().await, Some(0));
    assert!(server.seen.try_recv().is_err(), "the request was sent again");
}

/// A cluster whose credentials come from a shell script.
fn with_plugin(server: &str, script: &str) -> Cluster {
    let mut config = Config::new(server.parse().unwrap());
    let plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", script],
    });
    config.auth_info.exec = Some(serde_json::from_value::<ExecConfig>(plugin).unwrap());
    Cluster::at(config)
}

/// The result of `work` when `deadline` has passed since a plugin wrote its process ID into this
/// file and did not end.
async fn at_its_deadline<T>(work: impl Future<Output = T>, pid: &Path, deadline: Duration) -> T {
    let mut work = std::pin::pin!(work);
    let pid = loop {
        // The clock does not move by itself while a plugin runs.
        assert!(futures::poll!(&mut work).is_pending());
        if let Ok(pid) = std::fs::read_to_string(pid) {
            break pid;
        }
        tokio::task::yield_now().await;
    };
    tokio::time::advance(deadline).await;
    let result = work.await;
    let killed = std::process::Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(killed.success());
    result
}

/// A plugin that waits, for example for a person who is not there.
#[tokio::test(start_paused = true)]
async fn an_exec_plugin_that_does_not_end_fails_the_start_with_a_sentence_and_blocks_no_task() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // kube runs the plugin a second time after it failed.
    let script = format!("[ -e {0} ] && exit 1; echo $$ >{0}.new && mv {0}.new {0} && exec sleep 1000", pid.display());
    let cluster = with_plugin("http://192.0.2.1", &script);
    let error = at_its_deadline(cluster.client("test"), &pid, EXEC_PLUGIN).await.err().unwrap();
    let why = "cannot make a client of the cluster: the exec plugin sh of the kubeconfig gave no credentials within \
               120 s; run the plugin by hand to see why";
    assert_eq!(format!("{error:#}"), why);
}

#[tokio::test(start_paused = true)]
async fn an_exec_plugin_that_does_not_renew_an_expired_token_ends_the_request_at_its_deadline() {
    let mut server = Server::start(None).await;
    let folder = tempfile::tempdir().unwrap();
    let (expires, pid) = (folder.path().join("expires"), folder.path().join("pid"));
    let expired = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": { "token": "expired", "expirationTimestamp": "2020-01-01T00:00:00Z" },
    });
    // kube runs the plugin a second time after it failed.
    let script = format!(
        "[ -e {0} ] || {{ echo '{expired}'; exit; }}; [ -e {1} ] && exit 1; echo $$ >{1}.new && mv {1}.new {1} && exec sleep 1000",
        expires.display(),
        pid.display()
    );
    let cluster = with_plugin(&format!("http://{}", server.address), &script);
    let api: Api<ConfigMap> = Api::namespaced(cluster.client("test").await.unwrap(), "default");
    std::fs::write(expires, "").unwrap();
    let error = at_its_deadline(api.get("a"), &pid, Duration::from_mins(1)).await.unwrap_err();
    assert!(with_causes(&error).contains("did not answer"), "{}", with_causes(&error));
    assert!(server.seen.try_recv().is_err(), "the request was sent");
}
