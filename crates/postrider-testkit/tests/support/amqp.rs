//! The part of AMQP 0-9-1 that publishes a message and counts the messages of a queue.

use crate::support::Talk;

/// A connection with one channel.
pub(crate) struct Channel(Talk);

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;

impl Channel {
    pub(crate) async fn open(url: &str) -> Self {
        let mut talk = Talk::with(url).await;
        talk.say(b"AMQP\0\0\x09\x01").await;
        let mut channel = Self(talk);
        channel.hear(10, 10).await;
        channel.method(0, 10, 11, b"\0\0\0\0\x05PLAIN\0\0\0\x0c\0guest\0guest\x05en_US").await;
        let limits = channel.hear(10, 30).await;
        channel.method(0, 10, 31, &limits).await;
        channel.method(0, 10, 40, b"\x01/\0\0").await;
        channel.hear(10, 41).await;
        channel.method(1, 20, 10, b"\0").await;
        channel.hear(20, 11).await;
        // Enable publisher confirms.
        channel.method(1, 85, 10, b"\0").await;
        channel.hear(85, 11).await;
        channel
    }

    /// Declares a durable queue and returns the number of its messages.
    pub(crate) async fn declare(&mut self, queue: &str) -> u32 {
        let arguments = [b"\0\0", &short(queue)[..], b"\x02\0\0\0\0"].concat();
        self.method(1, 50, 10, &arguments).await;
        let answer = self.hear(50, 11).await;
        let messages = &answer[1 + queue.len()..][..4];
        u32::from_be_bytes(messages.try_into().unwrap())
    }

    /// Publishes a persistent message, and returns when it is confirmed.
    pub(crate) async fn publish(&mut self, queue: &str, body: &[u8]) {
        let arguments = [b"\0\0\0", &short(queue)[..], b"\0"].concat();
        self.method(1, 60, 40, &arguments).await;
        let size = (body.len() as u64).to_be_bytes();
        self.frame(HEADER, 1, &[b"\0\x3c\0\0", &size[..], b"\x10\0\x02"].concat()).await;
        self.frame(BODY, 1, body).await;
        self.hear(60, 80).await;
    }

    async fn method(&mut self, channel: u16, class: u16, method: u16, arguments: &[u8]) {
        let start = [class.to_be_bytes(), method.to_be_bytes()].concat();
        self.frame(METHOD, channel, &[&start, arguments].concat()).await;
    }

    async fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.0.say([&[kind], &channel.to_be_bytes()[..], &length, payload, b"\xce"].concat()).await;
    }

    /// Receives the next method, which must be this one, and returns its arguments.
    async fn hear(&mut self, class: u16, method: u16) -> Vec<u8> {
        let head = self.0.bytes(7).await;
        let length = u32::from_be_bytes(head[3..].try_into().unwrap()) as usize;
        let body = self.0.bytes(length + 1).await;
        assert_eq!(body[..4], [class.to_be_bytes(), method.to_be_bytes()].concat(), "{body:?}");
        body[4..length].to_vec()
    }
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}
