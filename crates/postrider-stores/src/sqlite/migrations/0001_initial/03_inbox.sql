-- The deduplication records: one for each message that a consumer has admitted, written in the transaction of its effects. The
-- tenant of a message without one is the empty text, because a null is equal to no other null.
create table {inbox} (
  consumer text not null,
  tenant text not null,
  message_id blob not null check (length(message_id) = 16),
  admitted_at integer not null,
  primary key (consumer, tenant, message_id)
) strict, without rowid;
create index {inbox_admitted} on {inbox} (consumer, admitted_at);

-- The number of deliveries of messages that are not handled yet, for brokers that do not count. The transaction that handles or
-- dead-letters a message deletes its count.
create table {inbox_count} (
  consumer text not null,
  tenant text not null,
  message_id blob not null check (length(message_id) = 16),
  deliveries integer not null,
  counted_at integer not null,
  primary key (consumer, tenant, message_id)
) strict, without rowid;
