//! The HTTP client of the SDK: TLS, timeouts and keepalive by the options of the client.
//!
//! The SDK's own client has one crypto provider for each of its features, no client certificates, and reads certificates once.

use aws_smithy_runtime_api::client::{
    http::{
        HttpConnector as SmithyConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
        http_client_fn,
    },
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
};
use aws_smithy_types::body::SdkBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use postrider_core::{BoxError, ClientOptions, Invalid};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;
use tower_service::Service;

/// Shorter than servers keep idle connections. The outcome of a request on a connection that the server is closing is unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// A client with a connection pool of its own.
pub(super) fn http_client(options: &ClientOptions) -> Result<SharedHttpClient, Invalid> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(options.keepalive());
    let tls = HttpsConnectorBuilder::new()
        .with_tls_config(postrider_tls::client_config(options)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    let connector = TimedConnector { connector: tls, within: options.connect_timeout() };
    let client = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let connector = SharedHttpConnector::new(SdkConnector(client));
    Ok(http_client_fn(move |_, _| connector.clone()))
}

/// Sends the requests of the SDK.
struct SdkConnector(Client<TimedConnector<HttpsConnector<HttpConnector>>, SdkBody>);

impl SmithyConnector for SdkConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let request = match request.try_into_http1x() {
            Ok(request) => request,
            Err(error) => return HttpConnectorFuture::ready(Err(ConnectorError::user(error.into()))),
        };
        let sending = self.0.request(request);
        HttpConnectorFuture::new(async move {
            let response = sending.await.map_err(|error| ConnectorError::io(error.into()))?;
            HttpResponse::try_from(response.map(SdkBody::from_body_1_x))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

impl fmt::Debug for SdkConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SdkConnector")
    }
}

/// A connector with a timeout for connection and TLS handshake together.
#[derive(Clone)]
struct TimedConnector<C> {
    connector: C,
    within: Duration,
}

impl<C, A> Service<A> for TimedConnector<C>
where
    C: Service<A>,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, address: A) -> Self::Future {
        let (connecting, within) = (self.connector.call(address), self.within);
        Box::pin(async move {
            match timeout(within, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(format!("no connection within {within:?}").into()),
            }
        })
    }
}
