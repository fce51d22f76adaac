-- What has been received: a mark for each message that a consumer has admitted, made in the transaction of its effects. The tenant
-- is empty where a message is nobody's, since a null would be equal to no other.
create table {inbox} (
  consumer text not null,
  tenant text not null,
  message_id blob not null check (length(message_id) = 16),
  admitted_at integer not null,
  primary key (consumer, tenant, message_id)
) strict, without rowid;
create index {inbox_admitted} on {inbox} (consumer, admitted_at);

-- How often messages were delivered that have not been handled yet, for brokers that do not count. What was handled, or parked, is
-- forgotten in the same transaction.
create table {inbox_count} (
  consumer text not null,
  tenant text not null,
  message_id blob not null check (length(message_id) = 16),
  deliveries integer not null,
  counted_at integer not null,
  primary key (consumer, tenant, message_id)
) strict, without rowid;
