//! HTTP requests to the daemon: health, metrics and webhooks.

use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The address in a log line.
pub(crate) fn address_in(line: &str) -> SocketAddr {
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(['"', '\n']).next());
    address.unwrap().parse().unwrap()
}

/// The status line of the response, and its body.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// The value of a metric; zero if it is missing.
pub(crate) async fn metric(address: SocketAddr, name: &str) -> u64 {
    let (_, metrics) = get(address, "/metrics").await;
    let number = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    number.unwrap_or_default()
}

pub(crate) async fn post(address: SocketAddr, path: &str, id: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nwebhook-id: {id}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.lines().next().unwrap().to_owned()
}
