//! Typed events, and everything that can be staged.

use crate::{Codec, Invalid, Message, MessageBuilder};

/// A type that is staged as a message: its name on the wire, its queue and its codec.
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
    /// Its name on every wire, such as `order.placed`. Renaming it is a breaking change for readers.
    const TYPE: &'static str;
    /// The queue it is staged in.
    const QUEUE: &'static str;
    /// How it is written.
    type Codec: Codec<Self>;

    /// What it is ordered and routed by.
    fn key(&self) -> Option<String> {
        None
    }

    /// Whom or what it is about.
    fn subject(&self) -> Option<String> {
        None
    }

    /// Begins its message, for a producer that wants to add a time, a header or an id.
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

/// What can be staged: a message, a builder, or a typed event.
pub trait IntoMessage {
    /// The message to stage.
    ///
    /// # Errors
    /// When a rule is broken.
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
