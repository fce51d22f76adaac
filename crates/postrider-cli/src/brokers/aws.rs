//! Amazon SQS and SNS.

use super::client;
use crate::config::EndpointSection;
#[cfg(feature = "sns")]
use postrider::transports::sns::SnsTransport;
use postrider::{
    Invalid,
    transports::sqs::{AwsOptions, SqsSource, SqsTransport},
};

pub(crate) fn sqs(section: &EndpointSection) -> Result<SqsTransport, Invalid> {
    SqsTransport::new(options(section)?)
}

pub(crate) fn sqs_source(section: &EndpointSection) -> Result<SqsSource, Invalid> {
    SqsSource::connect(options(section)?, section.required("queue")?)
}

#[cfg(feature = "sns")]
pub(crate) fn sns(section: &EndpointSection) -> Result<SnsTransport, Invalid> {
    SnsTransport::new(options(section)?)
}

fn options(section: &EndpointSection) -> Result<AwsOptions, Invalid> {
    let options = AwsOptions::new().with_client(client(section)?);
    Ok(match section.string("region") {
        Some(region) => options.with_region(region),
        None => options,
    })
}
