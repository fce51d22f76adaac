//! Checks stream and consumer for settings that lose messages before they are handled.

use crate::nats::{check::retention_findings, connection::NatsConnection};
use async_nats::jetstream::{
    consumer::{AckPolicy, Config},
    context::{ConsumerInfoErrorKind, GetStreamErrorKind},
    stream,
};
use postrider_core::{Finding, RedeliveryWindow, SourceError};

/// The command that creates a consumer.
pub(super) fn create_consumer_command(stream: &str, durable: &str) -> String {
    format!("nats consumer add {stream} {durable} --pull --ack explicit --max-deliver=-1")
}

pub(super) async fn findings(
    connection: &NatsConnection,
    stream: &str,
    durable: &str,
    is_created: bool,
) -> Result<Vec<Finding>, SourceError> {
    let Some(config) = stream_config(connection, stream).await? else {
        return Ok(vec![
            Finding::problem("missing_stream", stream)
                .because("the stream does not exist: nothing can be received")
                .fixed_by(format!("nats stream add {stream} --discard new")),
        ]);
    };
    let mut findings = retention_findings(&config);
    let named = connection.context.get_stream_no_info(stream).await.map_err(SourceError::unavailable)?;
    match named.consumer_info(durable).await {
        Ok(info) => findings.extend(consumer_findings(&format!("{stream}/{durable}"), stream, &info.config)),
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            // The first call creates it.
            findings.extend((!is_created).then(|| {
                Finding::problem("missing_consumer", format!("{stream}/{durable}"))
                    .because("the consumer does not exist: nothing can be received")
                    .fixed_by(create_consumer_command(stream, durable))
            }));
        }
        Err(error) => return Err(SourceError::unavailable(error)),
    }
    Ok(findings)
}

fn consumer_findings(subject: &str, stream: &str, config: &Config) -> Vec<Finding> {
    let durable = subject.rsplit('/').next().unwrap_or(subject);
    let recreate =
        || format!("create a new one, under another name: {}", create_consumer_command(stream, "NAME"));
    let edit = |option: &str| format!("nats consumer edit {stream} {durable} {option}");
    let mut findings = Vec::new();
    if config.deliver_subject.is_some() {
        findings.push(
            Finding::problem("push_consumer", subject)
                .because("it is a push consumer: messages cannot be pulled from it")
                .fixed_by(recreate()),
        );
    }
    match config.ack_policy {
        AckPolicy::Explicit => {}
        AckPolicy::None => findings.push(
            Finding::problem("ack_none", subject)
                .because(
                    "its ack policy is none: a message counts as acked when it is sent, and is never redelivered",
                )
                .fixed_by(recreate()),
        ),
        AckPolicy::All => findings.push(
            Finding::problem("ack_all", subject)
                .because("its ack policy is all: an ack of one message acks all before it, which may not be handled yet")
                .fixed_by(recreate()),
        ),
    }
    if config.max_deliver > 0 {
        findings.push(
            Finding::warning("max_deliver", subject)
                .because(format!(
                    "a message that was delivered {} times is never redelivered, acked or not: it stays in the stream, and only an advisory reports it",
                    config.max_deliver
                ))
                .fixed_by(edit("--max-deliver=-1: the retry settings of the Postrider consumer decide when to give up")),
        );
    }
    if config.headers_only {
        findings.push(
            Finding::problem("headers_only", subject)
                .because("it delivers headers without payloads")
                .fixed_by(edit("--no-headers-only")),
        );
    }
    if config.memory_storage {
        findings.push(
            Finding::warning("memory_consumer", subject)
                .because("its ack state is stored in memory: after a restart of its servers messages are redelivered or skipped")
                .fixed_by(recreate()),
        );
    }
    if !config.inactive_threshold.is_zero() {
        findings.push(
            Finding::warning("expiring_consumer", subject)
                .because(format!(
                    "it is deleted after {:?} without a pull request, with its ack state",
                    config.inactive_threshold
                ))
                .fixed_by(edit("--inactive-threshold=0, or longer than any outage of its clients")),
        );
    }
    findings
}

pub(super) async fn redelivery_window(
    connection: &NatsConnection,
    stream: &str,
) -> Result<RedeliveryWindow, SourceError> {
    let config = stream_config(connection, stream).await?;
    let config = config.ok_or_else(|| SourceError::unavailable(format!("stream {stream} does not exist")))?;
    Ok(match config.max_age {
        age if age.is_zero() => RedeliveryWindow::unbounded("the stream has no max_age"),
        age => RedeliveryWindow::within(age, format!("the stream has max_age = {age:?}")),
    })
}

/// The configuration of a stream; `None` if it does not exist.
async fn stream_config(
    connection: &NatsConnection,
    name: &str,
) -> Result<Option<stream::Config>, SourceError> {
    match connection.context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().config.clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(refused) if refused.code() == 404 => Ok(None),
            _ => Err(SourceError::unavailable(error)),
        },
    }
}
