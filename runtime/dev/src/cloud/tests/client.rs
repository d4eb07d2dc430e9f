//! A minimal client: one request for each connection.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::cloud::{SimCloud, SimOptions, SimServer};

/// The response.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(super) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A separate cloud and its API.
pub(super) async fn cloud() -> (SimCloud, SimServer) {
    let cloud = SimCloud::new(SimOptions::isolated());
    let server = cloud.serve(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    (cloud, server)
}

/// Sends a request with the full token; `headers` are complete lines.
pub(super) async fn send(server: &SimServer, line: &str, headers: &[&str], body: Option<Value>) -> Answer {
    let authorization = format!("authorization: Bearer {}", server.token);
    let mut lines = vec![authorization.as_str()];
    lines.extend(headers);
    raw(server.url.trim_start_matches("http://"), line, &lines, body).await.unwrap()
}

/// Sends a request with these header lines only.
pub(super) async fn raw(address: &str, line: &str, headers: &[&str], body: Option<Value>) -> std::io::Result<Answer> {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let answer = String::from_utf8(bytes).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    Ok(Answer { status, head: head.to_lowercase(), text: text.to_owned() })
}
