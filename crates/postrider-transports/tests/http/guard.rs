//! The address guard: no message goes to a forbidden address.

use crate::{receiver::*, *};
use std::net::{IpAddr, Ipv4Addr};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Allows http, so that a receiver in a test could be reached, and no address.
fn shut() -> HttpOptions {
    HttpOptions::new().allow_http()
}

#[tokio::test]
async fn private_address_in_url_is_never_dialled() {
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    let transport = transport(shut());
    let hosts = [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0.0.0.0",
        "[::1]",
    ];
    for host in hosts {
        let result = publish_one(&transport, &format!("http://{host}:{port}/")).await;
        assert!(is_reject(&result), "{host}: {result:?}");
    }
    assert_eq!(receiver.log().connections, 0);
}

#[tokio::test]
async fn name_with_private_address_is_never_dialled() {
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    let transport = transport(shut().with_addresses("rebound.example", [LOOPBACK]));
    for name in ["rebound.example", "localhost", "LOCALHOST", "localhost."] {
        let result = publish_one(&transport, &format!("http://{name}:{port}/")).await;
        assert!(is_retry(&result), "{name}: {result:?}");
    }
    let error = publish_one(&transport, &format!("http://rebound.example:{port}/")).await.unwrap_err();
    assert!(error.to_string().contains("rebound.example is at 127.0.0.1, which is not public"), "{error}");
    let below = HttpOptions::below(format!("http://localhost:{port}")).unwrap().allow_http();
    let result = publish_one(&crate::transport(below), "in").await;
    assert!(is_unavailable(&result), "the operator of the base URL must open it; messages wait: {result:?}");
    assert_eq!(receiver.log().connections, 0);
}

/// A name that was public for one connection may be private later. Each connection resolves it again, and dials only the addresses of
/// that resolution.
#[tokio::test]
async fn only_allowed_addresses_of_a_name_are_dialled() {
    let receiver = Receiver::start().await;
    let addresses = ["127.0.0.2", "127.0.0.1"].map(|address| address.parse().unwrap());
    let options = shut().with_addresses("shop.example", addresses).allow_network("127.0.0.1/32").unwrap();
    let url = format!("http://shop.example:{}/", receiver.address.port());
    publish_one(&transport(options), &url).await.unwrap();
    assert_eq!(receiver.log().arrived[0].header("host"), format!("shop.example:{}", receiver.address.port()));
}

#[tokio::test]
async fn allowed_host_is_allowed_by_its_name_only() {
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    let options =
        shut().with_addresses("shop.example", [LOOPBACK]).with_addresses("evil.example", [LOOPBACK]);
    let transport = transport(options.allow_host("Shop.example"));
    assert!(publish_one(&transport, &format!("http://shop.example:{port}/")).await.is_ok());
    assert!(is_retry(&publish_one(&transport, &format!("http://evil.example:{port}/")).await));
    assert!(is_reject(&publish_one(&transport, &format!("http://127.0.0.1:{port}/")).await));
}

#[tokio::test]
async fn address_is_allowed_with_and_without_brackets() {
    for host in ["::1", "[::1]"] {
        let transport = transport(shut().allow_host(host));
        let result = publish_one(&transport, &format!("http://[::1]:{}/", closed_port().await)).await;
        assert!(is_retry(&result), "it was dialled, and no receiver listens: {result:?}");
    }
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (inside, outside) = (Receiver::start().await, Receiver::start().await);
    let metadata = inside.url("/latest/meta-data");
    for status in [301, 302, 303, 307, 308] {
        let location = metadata.clone();
        outside.respond_with(move |_| ScriptedResponse::WithHeader(status, "location", location.clone()));
        let error = publish_one(&transport(open()), &outside.url("/")).await.unwrap_err();
        assert!(error.to_string().contains("redirects are not followed"), "{error}");
    }
    assert_eq!(inside.log().connections, 0);
}

#[tokio::test]
async fn http_is_refused_unless_allowed() {
    let receiver = Receiver::start().await;
    let options = HttpOptions::new().allow_network("127.0.0.0/8").unwrap();
    assert!(is_reject(&publish_one(&transport(options), &receiver.url("/")).await));
    assert_eq!(receiver.log().connections, 0);
    let error = HttpTransport::new(HttpOptions::below(receiver.url("/")).unwrap()).unwrap_err();
    assert!(error.to_string().contains("http is not encrypted"), "{error}");
    let private = HttpOptions::below("https://192.168.0.1/").unwrap();
    assert!(HttpTransport::new(private).unwrap_err().to_string().contains("not public"));
}

#[tokio::test]
async fn invalid_url_is_rejected() {
    let transport = transport(open());
    for destination in
        ["orders", "", "ftp://shop.example/", "https://", "http://127.0.0.1/../x", "http://127.0.0.1/#a"]
    {
        let result = publish_one(&transport, destination).await;
        assert!(is_reject(&result), "{destination:?}: {result:?}");
    }
}
