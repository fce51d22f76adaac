//! How the daemon is, for those who look after it: `/healthz`, `/readyz` and `/metrics`.

use super::fleet::Fleet;
use crate::problem::Problem;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// From what a fast broker needs to what somebody is woken up for. Histograms of several daemons can be added up.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0, 3600.0];

/// Samples that nobody fetches are put away so often.
const UPKEEP: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves from now on.
pub(super) async fn serve(address: SocketAddr, fleet: Arc<Fleet>) -> Result<(), Problem> {
    let metrics = recorder().map_err(|error| {
        Problem::new(format!("metrics cannot be recorded: {error}"), "turn them off with --listen off")
    })?;
    let cannot = |error| {
        let what = format!("{address} cannot be listened at: {error}");
        Problem::new(what, "give another address with --listen or in [http], or --listen off")
    };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    tracing::info!(name: "postrider.listening", "listening at http://{address}");
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        let mut clock = tokio::time::interval(UPKEEP);
        loop {
            clock.tick().await;
            upkeep.run_upkeep();
        }
    });
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(fleet)
        .route("/metrics", get(async move || ([(CONTENT_TYPE, TEXT)], metrics.render())));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

fn recorder() -> Result<PrometheusHandle, BuildError> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?.install_recorder()
}

async fn healthz(State(fleet): State<Arc<Fleet>>) -> impl IntoResponse {
    answer(&fleet.ailments().await)
}

async fn readyz(State(fleet): State<Arc<Fleet>>) -> impl IntoResponse {
    answer(&fleet.hindrances().await)
}

fn answer(trouble: &[String]) -> (StatusCode, String) {
    match trouble {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        trouble => (StatusCode::SERVICE_UNAVAILABLE, trouble.join("\n") + "\n"),
    }
}
