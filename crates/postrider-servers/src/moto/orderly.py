"""moto, one request to its queues at a time.

moto answers every request on a thread of its own and guards nothing. What is sent while something is deleted is lost, two who ask
get the same message, and a request that waits goes on with the groups that were taken when it began: it hands out a message before
an earlier one of its group. SQS does none of this.
"""

import functools
import threading
import time

from moto.server import main
from moto.sqs.models import SQSBackend

# A message that was hidden for a time comes back without a word.
LOOK_EVERY = 0.02

turn = threading.Condition(threading.RLock())


def in_turn(method):
    @functools.wraps(method)
    def wrapped(*args, **kwargs):
        with turn:
            result = method(*args, **kwargs)
            turn.notify_all()
            return result

    return wrapped


def receive_in_turn(receive):
    @functools.wraps(receive)
    def wrapped(self, queue_name, count, wait_seconds_timeout, *args, **kwargs):
        until = time.monotonic() + (wait_seconds_timeout or 0)
        with turn:
            while True:
                # What is visible again is in nobody's hands: looked at beforehand, so that a group is free for all of it or for none.
                pending = self.get_queue(queue_name).pending_messages
                pending -= {message for message in pending if message.visible}
                messages = receive(self, queue_name, count, 0, *args, **kwargs)
                left = until - time.monotonic()
                if messages or left <= 0:
                    return messages
                turn.wait(min(left, LOOK_EVERY))

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
    setattr(SQSBackend, name, in_turn(getattr(SQSBackend, name)))
SQSBackend.receive_message = receive_in_turn(SQSBackend.receive_message)

main()
