// Places an order and stages its messages in the same transaction, with node-postgres.
//
//     DATABASE_URL=postgres://shop_web@localhost/shop node stage.js 17
//
// The role needs permissions on its own table and the grants that `grants(Role::Producer, …)` prints; none on Postrider's tables.

"use strict";

const { Client } = require("pg");

// The order and its messages commit together, or not at all.
async function placeOrder(client, order) {
  await client.query("begin");
  try {
    await client.query("insert into orders (id, placed_by) values ($1, 'node')", [order]);
    // The function: named arguments; it returns the id of the message.
    const staged = await client.query(
      "select postrider.stage('orders', $1::text, type => 'order.placed', key => $2, headers => $3::jsonb) as id",
      [JSON.stringify({ order }), `order-${order}`, JSON.stringify({ language: "node" })],
    );
    // The view: any tool that can insert can stage. This message is a named timer: due in an hour, and cancellable by its name.
    await client.query(
      `insert into postrider.outbox (queue, payload, type, timer, due_after)
       values ('reminders', $1, 'order.unpaid', $2, interval '1 hour')`,
      [Buffer.from(JSON.stringify({ order })), `unpaid-${order}`],
    );
    if (order < 0) throw new RangeError("an order has a number above zero");
    await client.query("commit");
    return staged.rows[0].id;
  } catch (error) {
    await client.query("rollback");
    throw error;
  }
}

async function main() {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    console.log(await placeOrder(client, Number(process.argv[2])));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    console.log(`rolled back: ${error.message}`);
  }
  // Bad input is rejected with an error that names the field.
  await client.query("select postrider.stage('my orders', '{}')").catch((error) => {
    if (error.code !== "22023") throw error;
    console.log(`refused: ${error.message}`);
  });
  await client.end();
}

main();
