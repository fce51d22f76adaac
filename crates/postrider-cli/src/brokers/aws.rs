//! Amazon SQS and SNS.

use crate::config::EndpointSection;
#[cfg(feature = "sns")]
use postrider::transports::sns::SnsTransport;
use postrider::{
    Invalid,
    transports::sqs::{AwsOptions, SqsSource, SqsTransport},
};

pub(crate) fn sqs(section: &EndpointSection) -> Result<SqsTransport, Invalid> {
    SqsTransport::new(options(section))
}

pub(crate) fn sqs_source(section: &EndpointSection) -> Result<SqsSource, Invalid> {
    SqsSource::connect(options(section), section.required("queue")?)
}

#[cfg(feature = "sns")]
pub(crate) fn sns(section: &EndpointSection) -> Result<SnsTransport, Invalid> {
    SnsTransport::new(options(section))
}

fn options(section: &EndpointSection) -> AwsOptions {
    let mut options = AwsOptions::new();
    if let Some(url) = section.secret("url") {
        options = options.with_endpoint_url(url.reveal());
    }
    match section.string("region") {
        Some(region) => options.with_region(region),
        None => options,
    }
}
