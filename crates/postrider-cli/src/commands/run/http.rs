//! How the daemon is, for those who look after it: `/healthz`, `/readyz` and `/metrics`.

use super::fleet::Fleet;
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

/// From what a fast broker needs to what somebody is woken up for. Histograms of several daemons can be added up.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0, 3600.0];

/// Samples that nobody fetches are put away so often.
const UPKEEP: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers, where it was told to listen.
#[derive(Debug)]
pub(super) struct Http {
    router: Router,
    listen: Listen,
    serving: JoinSet<()>,
}

impl Http {
    /// Records from now on, before anything is there that counts; and listens nowhere yet.
    pub(super) fn new(fleet: Arc<Fleet>) -> Result<Self, Problem> {
        let metrics = recorder().map_err(|error| {
            Problem::new(format!("metrics cannot be recorded: {error}"), "start it anew").coded(Code::Listen)
        })?;
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
        Ok(Self { router, listen: Listen(None), serving: JoinSet::new() })
    }

    /// Listens there from now on. Where that cannot be, it goes on as before.
    pub(super) async fn listen(&mut self, listen: Listen) -> Result<(), Problem> {
        if listen == self.listen {
            return Ok(());
        }
        let mut serving = JoinSet::new();
        if let Some(address) = listen.0 {
            let cannot = |error| {
                let what = format!("{address} cannot be listened at: {error}");
                Problem::new(what, "give another address with --listen or in [http], or --listen off")
                    .coded(Code::Listen)
            };
            let listener = TcpListener::bind(address).await.map_err(cannot)?;
            let address = listener.local_addr().map_err(cannot)?;
            tracing::info!(name: "postrider.listening", "listening at http://{address}");
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
