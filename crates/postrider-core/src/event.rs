//! Typed events, and conversion into messages.

use crate::{Codec, Invalid, Message, MessageBuilder};

/// A type that is staged as a message: its event type, its queue and its codec.
///
/// With the crate `postrider`, derive it: `#[derive(Event)]` and `#[event(type = "order.placed", queue = "orders")]`. By hand:
///
/// ```
/// # use postrider_core::{Event, IntoMessage, Json};
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct OrderPlaced { order: u64 }
///
/// impl Event for OrderPlaced {
///     const TYPE: &'static str = "order.placed";
///     const QUEUE: &'static str = "orders";
///     type Codec = Json;
///
///     fn key(&self) -> Option<String> {
///         Some(self.order.to_string())
///     }
/// }
///
/// let message = OrderPlaced { order: 17 }.into_message()?;
/// assert_eq!(message.payload().as_ref(), br#"{"order":17}"#);
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
pub trait Event: Sized {
    /// The event type on every wire, such as `order.placed`. Renaming it is a breaking change for receivers.
    const TYPE: &'static str;
    /// The queue in which it is staged.
    const QUEUE: &'static str;
    /// The codec of the payload.
    type Codec: Codec<Self>;

    /// The ordering key.
    fn key(&self) -> Option<String> {
        None
    }

    /// The subject.
    fn subject(&self) -> Option<String> {
        None
    }

    /// A builder of its message, to add a due time, a header or an id.
    fn message(&self) -> MessageBuilder {
        let mut builder =
            Message::builder(Self::QUEUE).event_type(Self::TYPE).encoded::<Self, Self::Codec>(self);
        if let Some(key) = self.key() {
            builder = builder.key(key);
        }
        if let Some(subject) = self.subject() {
            builder = builder.subject(subject);
        }
        builder
    }
}

/// A value that can be staged: a message, a builder, or a typed event.
pub trait IntoMessage {
    /// The message to stage.
    ///
    /// # Errors
    /// When the message is invalid.
    fn into_message(self) -> Result<Message, Invalid>;
}

impl IntoMessage for Message {
    fn into_message(self) -> Result<Message, Invalid> {
        Ok(self)
    }
}

impl IntoMessage for &Message {
    fn into_message(self) -> Result<Message, Invalid> {
        Ok(self.clone())
    }
}

impl IntoMessage for MessageBuilder {
    fn into_message(self) -> Result<Message, Invalid> {
        self.build()
    }
}

impl<E: Event> IntoMessage for &E {
    fn into_message(self) -> Result<Message, Invalid> {
        self.message().build()
    }
}
