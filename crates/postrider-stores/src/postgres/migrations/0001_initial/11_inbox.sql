-- Deduplication records: one for each message that a consumer has admitted, inserted in the transaction of the handler's effects.
--
-- Records are inserted and deleted, never updated. The index by time is for pruning, consumer by consumer because each keeps its
-- records as long as it has to, and is appended to; the records of one batch have one time, and so one entry. BRIN would be
-- smaller, but a page that pruning has emptied is filled again, and its range then spans all times that have ever been in it: after
-- one cycle through the table every range does, and pruning would read everything.
create table {inbox} (
  admitted_at timestamptz not null,
  message_id uuid not null,
  consumer text collate "C" not null,
  -- Empty for a message without a tenant, because a null would be equal to no other.
  tenant text collate "C" not null,
  constraint {#inbox_pkey} primary key (consumer, tenant, message_id)
) with (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_vacuum_cost_delay = 0
);
create index {#inbox_admitted} on {inbox} (consumer, admitted_at);

-- Inserts deduplication records, and returns the messages that had one before: their indexes, from 1, and ids. The pairs of tenant
-- and id must be distinct and in the same order in every call: a call that meets a record of an open transaction waits for it, and
-- two calls that wait for each other would be a deadlock. A function, so that the session keeps the plan whatever the driver does,
-- and so that a consumer needs no privilege on the table. NOT IN has one plan here, a hash table; a join might be a nested loop,
-- because the planner expects arrays to be short.
create function {admit}(p_consumer text, p_tenant text[], p_id uuid[]) returns table (n integer, id uuid)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  return query
  with fresh as (
    insert into {inbox} (admitted_at, message_id, consumer, tenant)
    select v_now, u.id, p_consumer, u.tenant from unnest(p_tenant, p_id) u(tenant, id)
    on conflict (consumer, tenant, message_id) do nothing
    returning tenant, message_id)
  select u.n::integer, u.id from unnest(p_tenant, p_id) with ordinality u(tenant, id, n)
  where (u.tenant, u.id) not in (select f.tenant, f.message_id from fresh f);
end
$$;

revoke all on function {admit} from public;

-- Delivery counts of messages that have not been handled yet, for brokers that do not count. Small: the count of a handled or
-- dead-lettered message is deleted in the same transaction.
create table {inbox_count} (
  counted_at timestamptz not null,
  message_id uuid not null,
  deliveries integer not null,
  consumer text collate "C" not null,
  tenant text collate "C" not null,
  constraint {#inbox_count_pkey} primary key (consumer, tenant, message_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
