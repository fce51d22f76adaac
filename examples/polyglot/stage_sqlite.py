"""Places an order and stages its messages in the same transaction, in a file of SQLite, with what Python brings along.

    python3 stage_sqlite.py shop.db 17

The file has Postrider's tables already: `SqliteStore::migrate` made them, or the statements that it prints.
"""

import json
import sqlite3
import sys
import uuid


def place_order(connection: sqlite3.Connection, order: int) -> str:
    """The order and its messages commit together, or not at all."""
    # An insert cannot tell the id that it made, so who needs it gives one.
    staged = str(uuid.uuid4())
    with connection:
        connection.execute("insert into orders (id, placed_by) values (?, 'python')", [order])
        connection.execute(
            "insert into postrider_outbox (queue, payload, type, key, headers, id)"
            " values ('orders', ?, 'order.placed', ?, ?, ?)",
            [json.dumps({"order": order}), f"order-{order}", json.dumps({"language": "python"}), staged],
        )
        # This one waits for an hour, and can be cancelled by its name.
        connection.execute(
            "insert into postrider_outbox (queue, payload, type, timer, due_after)"
            " values ('reminders', ?, 'order.unpaid', ?, 3600)",
            [json.dumps({"order": order}), f"unpaid-{order}"],
        )
        if order < 0:
            raise ValueError("an order has a number above zero")
    return staged


def main() -> int:
    # Wait for other writers, and take the lock at the beginning: a transaction that reads first cannot wait later.
    connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level="IMMEDIATE")
    try:
        print(place_order(connection, int(sys.argv[2])))
    except ValueError as error:
        print(f"rolled back: {error}")
    # Bad input is refused in words that name the field.
    try:
        connection.execute("insert into postrider_outbox (queue, payload) values ('my orders', '{}')")
    except sqlite3.IntegrityError as error:
        print(f"refused: {error}")
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
