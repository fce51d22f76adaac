//! Sending traces to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! Every message's way through the daemon is a span, with a link to the span in which it was staged. They are sent in batches by a
//! thread of their own; what a collector does not take in time is dropped, and never holds up a message.

#![cfg_attr(not(feature = "otlp"), allow(clippy::unused_async, reason = "elsewhere it waits"))]

use crate::{config::Secret, logs::Lines, problem::Problem};

/// What is sent: our own spans, and nothing of whoever sends them.
#[cfg(feature = "otlp")]
const OURS: &str = "postrider";

/// Sends what is told until it is closed.
#[derive(Debug)]
pub(crate) struct Traces {
    #[cfg(feature = "otlp")]
    provider: opentelemetry_sdk::trace::SdkTracerProvider,
}

#[cfg(feature = "otlp")]
impl Traces {
    /// Spans go to the collector at `endpoint` from now on, through the layer.
    pub(crate) fn open(endpoint: &Secret) -> Result<(Self, Lines), Problem> {
        use opentelemetry::trace::TracerProvider;
        use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
        use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
        use tracing_subscriber::{Layer, filter::Targets};

        // Whoever has chosen already has chosen well.
        rustls::crypto::ring::default_provider().install_default().ok();
        let url = format!("{}/v1/traces", endpoint.reveal().trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url)
            .build()
            .map_err(|error| {
                let what = format!("traces cannot be sent to {endpoint}: {error}");
                Problem::new(what, "give the URL of a collector such as http://localhost:4318")
            })?;
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => Resource::builder(),
            None => Resource::builder().with_service_name("postrider"),
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("postrider"));
        let ours = Targets::new().with_target(OURS, tracing::Level::INFO);
        Ok((Self { provider }, layer.with_filter(ours).boxed()))
    }

    /// Sends what is left, for a few seconds at the most.
    pub(crate) async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || self.provider.shutdown());
        if let Ok(Err(error)) = closing.await {
            tracing::warn!(name: "postrider.traces_lost", %error, "the last traces could not be sent");
        }
    }
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    /// The configuration does not let anybody come here.
    pub(crate) fn open(_: &Secret) -> Result<(Self, Lines), Problem> {
        Err(Problem::new("this build sends no traces", ADVICE))
    }

    pub(crate) async fn close(self) {}
}

/// What to do when this build does not have it.
pub(crate) const ADVICE: &str =
    "install the build with it: cargo install postrider-cli --features otlp (or --features full)";
