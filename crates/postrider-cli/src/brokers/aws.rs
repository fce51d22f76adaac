//! Amazon SQS and SNS.

use crate::config::Place;
#[cfg(feature = "sns")]
use postrider::transports::sns::SnsTransport;
use postrider::{
    Invalid,
    transports::sqs::{AwsOptions, SqsSource, SqsTransport},
};

pub(crate) fn sqs(place: &Place) -> Result<SqsTransport, Invalid> {
    SqsTransport::new(options(place))
}

pub(crate) fn sqs_source(place: &Place) -> Result<SqsSource, Invalid> {
    SqsSource::connect(options(place), place.needed("queue")?)
}

#[cfg(feature = "sns")]
pub(crate) fn sns(place: &Place) -> Result<SnsTransport, Invalid> {
    SnsTransport::new(options(place))
}

fn options(place: &Place) -> AwsOptions {
    let mut options = AwsOptions::new();
    if let Some(url) = place.secret("url") {
        options = options.with_endpoint_url(url.reveal());
    }
    match place.text("region") {
        Some(region) => options.with_region(region),
        None => options,
    }
}
