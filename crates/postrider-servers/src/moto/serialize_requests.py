"""Runs moto with one request to its queues and topics at a time.

moto handles every request on its own thread without locks. A message sent during a delete is lost, two receivers get the same
message, and a waiting receive keeps the set of locked groups from its beginning: it returns a message before an earlier one of the
same group. A batch that is published while another topic gets a subscription lacks the results of some messages, because the
failed walk over the subscriptions is ignored. SQS and SNS do none of this.
"""

import functools
import threading
import time

from moto.server import main
from moto.sns.models import SNSBackend
from moto.sqs.models import SQSBackend

# A message becomes visible again without a notification.
POLL_SECONDS = 0.02

lock = threading.Condition(threading.RLock())


def serialized(method):
    @functools.wraps(method)
    def wrapped(*args, **kwargs):
        with lock:
            result = method(*args, **kwargs)
            lock.notify_all()
            return result

    return wrapped


def serialized_receive(receive):
    @functools.wraps(receive)
    def wrapped(self, queue_name, count, wait_seconds_timeout, *args, **kwargs):
        until = time.monotonic() + (wait_seconds_timeout or 0)
        with lock:
            while True:
                # A visible message is not in flight: updated first, so that a group is free for all of its messages or for none.
                pending = self.get_queue(queue_name).pending_messages
                pending -= {message for message in pending if message.visible}
                messages = receive(self, queue_name, count, 0, *args, **kwargs)
                left = until - time.monotonic()
                if messages or left <= 0:
                    return messages
                lock.wait(min(left, POLL_SECONDS))

    return wrapped


for name in [
    "change_message_visibility",
    "change_message_visibility_batch",
    "delete_message",
    "delete_message_batch",
    "delete_queue",
    "purge_queue",
    "send_message",
    "send_message_batch",
    "set_queue_attributes",
]:
    setattr(SQSBackend, name, serialized(getattr(SQSBackend, name)))
for name in [
    "create_topic",
    "delete_topic",
    "publish",
    "publish_batch",
    "set_subscription_attributes",
    "subscribe",
    "unsubscribe",
]:
    setattr(SNSBackend, name, serialized(getattr(SNSBackend, name)))
SQSBackend.receive_message = serialized_receive(SQSBackend.receive_message)

main()
