"""Places an order and stages its messages in the same transaction, in a SQLite file, with Python's standard library.

    python3 stage_sqlite.py shop.db 17

The file must have Postrider's tables: run `SqliteStore::migrate` or the statements that `print()` prints.
"""

import json
import sqlite3
import sys
import uuid


def place_order(connection: sqlite3.Connection, order: int) -> str:
    """The order and its messages commit together, or not at all."""
    # An insert returns no result: a caller that needs the id provides it.
    staged = str(uuid.uuid4())
    with connection:
        connection.execute("insert into orders (id, placed_by) values (?, 'python')", [order])
        connection.execute(
            "insert into postrider_outbox (queue, payload, type, key, headers, id)"
            " values ('orders', ?, 'order.placed', ?, ?, ?)",
            [json.dumps({"order": order}), f"order-{order}", json.dumps({"language": "python"}), staged],
        )
        # A named timer: due in an hour, and cancellable by its name.
        connection.execute(
            "insert into postrider_outbox (queue, payload, type, timer, due_after)"
            " values ('reminders', ?, 'order.unpaid', ?, 3600)",
            [json.dumps({"order": order}), f"unpaid-{order}"],
        )
        if order < 0:
            raise ValueError("an order has a number above zero")
    return staged


def main() -> int:
    # Busy timeout for other writers, and BEGIN IMMEDIATE: a transaction that reads before it writes cannot wait for the lock later.
    connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level="IMMEDIATE")
    try:
        print(place_order(connection, int(sys.argv[2])))
    except ValueError as error:
        print(f"rolled back: {error}")
    # Bad input is rejected with an error that names the field.
    try:
        connection.execute("insert into postrider_outbox (queue, payload) values ('my orders', '{}')")
    except sqlite3.IntegrityError as error:
        print(f"refused: {error}")
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
