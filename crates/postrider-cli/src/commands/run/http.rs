//! The endpoints `/healthz` (liveness), `/readyz` (readiness) and `/metrics`.

use super::supervisor::Supervisor;
use crate::{
    config::Listen,
    problem::{Code, Problem},
};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, task::JoinSet};

/// Histogram buckets, from the latency of a fast broker to a delay that pages an operator. They are fixed, so that the histograms of
/// several daemons can be aggregated.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0, 3600.0];

/// How often samples that no scrape has fetched are moved into the histograms.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The HTTP server of the daemon.
#[derive(Debug)]
pub(super) struct HttpServer {
    router: Router,
    listen: Listen,
    serving: JoinSet<()>,
}

impl HttpServer {
    /// Installs the metrics recorder, before any component emits metrics. The server does not listen yet.
    pub(super) fn new(supervisor: Arc<Supervisor>) -> Result<Self, Problem> {
        let metrics = recorder().map_err(|error| {
            Problem::new(format!("cannot install the metrics recorder: {error}"), "restart postrider")
                .with_code(Code::Listen)
        })?;
        let upkeep = metrics.clone();
        tokio::spawn(async move {
            let mut clock = tokio::time::interval(UPKEEP_INTERVAL);
            loop {
                clock.tick().await;
                upkeep.run_upkeep();
            }
        });
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(supervisor)
            .route("/metrics", get(async move || ([(CONTENT_TYPE, PROMETHEUS_TEXT)], metrics.render())));
        Ok(Self { router, listen: Listen(None), serving: JoinSet::new() })
    }

    /// Moves the server to this address. If it cannot listen there, it stays where it was.
    pub(super) async fn listen(&mut self, listen: Listen) -> Result<(), Problem> {
        if listen == self.listen {
            return Ok(());
        }
        let mut serving = JoinSet::new();
        if let Some(address) = listen.0 {
            let cannot = |error| {
                let what = format!("cannot listen on {address}: {error}");
                Problem::new(what, "set another address with --listen or http.listen, or pass --listen off")
                    .with_code(Code::Listen)
            };
            let listener = TcpListener::bind(address).await.map_err(cannot)?;
            let address = listener.local_addr().map_err(cannot)?;
            tracing::info!(name: "postrider.listening", "health and metrics endpoints listening on http://{address}");
            let router = self.router.clone();
            serving.spawn(async move {
                axum::serve(listener, router).await.ok();
            });
        }
        self.listen = listen;
        std::mem::replace(&mut self.serving, serving).shutdown().await;
        Ok(())
    }
}

fn recorder() -> Result<PrometheusHandle, BuildError> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?.install_recorder()
}

async fn healthz(State(supervisor): State<Arc<Supervisor>>) -> impl IntoResponse {
    status(&supervisor.not_alive_reasons().await)
}

async fn readyz(State(supervisor): State<Arc<Supervisor>>) -> impl IntoResponse {
    status(&supervisor.not_ready_reasons().await)
}

fn status(reasons: &[String]) -> (StatusCode, String) {
    match reasons {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        reasons => (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n"),
    }
}
