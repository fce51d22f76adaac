//! What would lose messages before they were handled.

use crate::nats::{check::losing, link::NatsLink};
use async_nats::jetstream::{
    consumer::{AckPolicy, Config},
    context::{ConsumerInfoErrorKind, GetStreamErrorKind},
    stream,
};
use postrider_core::{Finding, Redelivers, SourceError};

/// How to make a consumer.
pub(super) fn create(stream: &str, durable: &str) -> String {
    format!("nats consumer add {stream} {durable} --pull --ack explicit --max-deliver=-1")
}

pub(super) async fn findings(
    link: &NatsLink,
    stream: &str,
    durable: &str,
    is_made: bool,
) -> Result<Vec<Finding>, SourceError> {
    let Some(config) = stream_config(link, stream).await? else {
        return Ok(vec![
            Finding::problem("missing_stream", stream)
                .because("it does not exist: nothing can be received")
                .fixed_by(format!("nats stream add {stream} --discard new")),
        ]);
    };
    let mut findings = losing(&config);
    let named = link.context.get_stream_no_info(stream).await.map_err(SourceError::down)?;
    match named.consumer_info(durable).await {
        Ok(info) => findings.extend(of_consumer(&format!("{stream}/{durable}"), stream, &info.config)),
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            // It is made with the first call.
            findings.extend((!is_made).then(|| {
                Finding::problem("missing_consumer", format!("{stream}/{durable}"))
                    .because("it does not exist: nothing can be received")
                    .fixed_by(create(stream, durable))
            }));
        }
        Err(error) => return Err(SourceError::down(error)),
    }
    Ok(findings)
}

fn of_consumer(subject: &str, stream: &str, config: &Config) -> Vec<Finding> {
    let durable = subject.rsplit('/').next().unwrap_or(subject);
    let anew = || format!("make it anew, under another name: {}", create(stream, "NAME"));
    let edit = |what: &str| format!("nats consumer edit {stream} {durable} {what}");
    let mut findings = Vec::new();
    if config.deliver_subject.is_some() {
        findings.push(
            Finding::problem("push_consumer", subject)
                .because("it pushes to a subject: nobody can ask it for messages")
                .fixed_by(anew()),
        );
    }
    match config.ack_policy {
        AckPolicy::Explicit => {}
        AckPolicy::None => findings.push(
            Finding::problem("ack_none", subject)
                .because(
                    "it takes messages for handled when they are sent: what is not handled never comes again",
                )
                .fixed_by(anew()),
        ),
        AckPolicy::All => findings.push(
            Finding::problem("ack_all", subject)
                .because("an answer to one message answers all before it, which may not be handled yet")
                .fixed_by(anew()),
        ),
    }
    if config.max_deliver > 0 {
        findings.push(
            Finding::warning("max_deliver", subject)
                .because(format!(
                    "a message that was delivered {} times never comes again, answered or not: it is stranded in the stream, and only an advisory tells",
                    config.max_deliver
                ))
                .fixed_by(edit("--max-deliver=-1: the consumer's own rules decide what is given up")),
        );
    }
    if config.headers_only {
        findings.push(
            Finding::problem("headers_only", subject)
                .because("it sends headers without payloads")
                .fixed_by(edit("--no-headers-only")),
        );
    }
    if config.memory_storage {
        findings.push(
            Finding::warning("memory_consumer", subject)
                .because("what was answered is held in memory: after a restart of its servers messages come again, or are passed over")
                .fixed_by(anew()),
        );
    }
    if !config.inactive_threshold.is_zero() {
        findings.push(
            Finding::warning("expiring_consumer", subject)
                .because(format!(
                    "it is removed when nobody has asked it for {:?}, with all it knows of what was answered",
                    config.inactive_threshold
                ))
                .fixed_by(edit("--inactive-threshold=0, or longer than its readers are ever away")),
        );
    }
    findings
}

pub(super) async fn redelivers(link: &NatsLink, stream: &str) -> Result<Redelivers, SourceError> {
    let config = stream_config(link, stream).await?;
    let config = config.ok_or_else(|| SourceError::down(format!("there is no stream {stream}")))?;
    Ok(match config.max_age {
        age if age.is_zero() => Redelivers::for_ever("the stream has no max_age"),
        age => Redelivers::within(age, format!("the stream has max_age = {age:?}")),
    })
}

/// How a stream is configured; nothing where there is none.
async fn stream_config(link: &NatsLink, name: &str) -> Result<Option<stream::Config>, SourceError> {
    match link.context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().config.clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(refused) if refused.code() == 404 => Ok(None),
            _ => Err(SourceError::down(error)),
        },
    }
}
