//! Exports traces to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! Each delivery of a message is a span, with a link to the span in which the message was staged. A thread exports spans in batches; spans
//! that the collector does not accept in time are dropped, and never delay a message.

#![cfg_attr(not(feature = "otlp"), allow(clippy::unused_async, reason = "with otlp it waits"))]

use crate::{config::Secret, logs::Lines, problem::Problem};

/// The prefix of the exported targets: Postrider's own spans, none of the exporter's.
#[cfg(feature = "otlp")]
const TARGET: &str = "postrider";

/// The exporter of spans.
#[derive(Debug)]
pub(crate) struct Traces {
    #[cfg(feature = "otlp")]
    provider: opentelemetry_sdk::trace::SdkTracerProvider,
}

#[cfg(feature = "otlp")]
impl Traces {
    /// Opens the exporter to the collector at `endpoint`, and returns the layer that feeds it.
    pub(crate) fn open(endpoint: &Secret) -> Result<(Self, Lines), Problem> {
        use opentelemetry::trace::TracerProvider;
        use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
        use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
        use tracing_subscriber::{Layer, filter::Targets};

        // A provider that is installed already stays.
        rustls::crypto::ring::default_provider().install_default().ok();
        let url = format!("{}/v1/traces", endpoint.reveal().trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url)
            .build()
            .map_err(|error| {
                let what = format!("cannot export traces to {endpoint}: {error}");
                Problem::new(what, "write the URL of a collector such as http://localhost:4318")
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
        let targets = Targets::new().with_target(TARGET, tracing::Level::INFO);
        Ok((Self { provider }, layer.with_filter(targets).boxed()))
    }

    /// Exports the remaining spans, for a few seconds at most.
    pub(crate) async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || self.provider.shutdown());
        if let Ok(Err(error)) = closing.await {
            tracing::warn!(name: "postrider.traces_lost", %error, "the last traces were not exported");
        }
    }
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    /// Unreachable: the configuration rejects an endpoint in this build.
    pub(crate) fn open(_: &Secret) -> Result<(Self, Lines), Problem> {
        Err(Problem::new("this build cannot export traces", ADVICE))
    }

    pub(crate) async fn close(self) {}
}

/// What to do about a build without it.
pub(crate) const ADVICE: &str =
    "install a build with it: cargo install postrider-cli --features otlp (or --features full)";
