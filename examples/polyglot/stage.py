"""Places an order and stages its messages in the same transaction, with psycopg 3.

    DATABASE_URL=postgres://shop_web@localhost/shop python3 stage.py 17

The role needs permissions on its own table and the grants that `grants(Role::Producer, …)` prints; none on Postrider's tables.
"""

import json
import os
import sys

import psycopg


def place_order(connection: psycopg.Connection, order: int) -> str:
    """The order and its messages commit together, or not at all."""
    with connection.transaction():
        connection.execute("insert into orders (id, placed_by) values (%s, 'python')", [order])
        # The function: named arguments; it returns the id of the message.
        staged = connection.execute(
            "select postrider.stage('orders', %s::text, type => 'order.placed', key => %s, headers => %s::jsonb)",
            [json.dumps({"order": order}), f"order-{order}", json.dumps({"language": "python"})],
        ).fetchone()
        # The view: any tool that can insert can stage. This message is a named timer: due in an hour, and cancellable by its name.
        connection.execute(
            "insert into postrider.outbox (queue, payload, type, timer, due_after)"
            " values ('reminders', %s, 'order.unpaid', %s, interval '1 hour')",
            [json.dumps({"order": order}).encode(), f"unpaid-{order}"],
        )
        if order < 0:
            raise ValueError("an order has a number above zero")
    return str(staged[0])


def main() -> int:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        try:
            print(place_order(connection, int(sys.argv[1])))
        except ValueError as error:
            print(f"rolled back: {error}")
        # Bad input is rejected with an error that names the field.
        try:
            connection.execute("select postrider.stage('my orders', '{}')")
        except psycopg.errors.InvalidParameterValue as error:
            print(f"refused: {error.diag.message_primary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
