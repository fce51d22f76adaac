-- The partitions of the archive: one for each day on which messages expire. A message whose day has no partition goes to the default
-- partition, so a missing one loses nothing.
--
-- To create or drop a partition takes locks for which everything that reads or writes the archive waits behind this transaction.
-- So each partition is a call of its own, whose short timeout bounds that wait, and the caller tries again later.

-- The days whose partition has expired, or is missing.
create function {partition_changes}() returns setof date
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_partitions date[] := array(
    select to_date(right(c.relname, 8), 'YYYYMMDD') from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = '{archive}'::regclass and c.relname ~ ('^' || '{#prefix}' || 'archive_[0-9]{8}$'));
begin
  return query
  select d.day from unnest(v_partitions) d(day) where d.day < (clock_timestamp() at time zone 'UTC')::date order by d.day;
  return query
  select distinct d.day from {queue} q, generate_series(0, 2) ahead, lateral (
    select (clock_timestamp() at time zone 'UTC' + q.keep_for)::date + ahead as day) d
  where q.keep_for is not null and d.day <> all(v_partitions) and {may_partition}(d.day) order by d.day;
end
$$;

-- Whether a new partition for this day would be cheap and possible: the server compares it with every row of the default
-- partition, while it holds the locks, and refuses it when one of them belongs to the day.
create function {may_partition}(p_day date) returns boolean
language sql stable as $$
  select pg_relation_size('{archive_rest}') <= 16777216 and not exists (
    select from {archive_rest} r
    where r.expires_at >= p_day::timestamp at time zone 'UTC' and r.expires_at < (p_day + 1)::timestamp at time zone 'UTC')
$$;

-- Drops the partition of a past day, or creates the partition of another one. Returns the number of rows dropped, according to the
-- statistics.
create function {change_partition}(p_day date) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  v_name text := format('%I.%I', '{#schema}', '{#prefix}' || 'archive_' || to_char(p_day, 'YYYYMMDD'));
  v_rows bigint;
begin
  -- The order in which writers take them. Of two processes, the second finds the work done.
  lock table only {archive} in access exclusive mode;
  lock table only {archive_rest} in access exclusive mode;
  if p_day < (clock_timestamp() at time zone 'UTC')::date then
    select greatest(c.reltuples, 0)::bigint into v_rows from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = '{archive}'::regclass and i.inhrelid = to_regclass(v_name);
    if found then
      execute format('drop table %s', v_name);
    end if;
  elsif to_regclass(v_name) is null and {may_partition}(p_day) then
    execute format(
      'create table %s partition of {archive} for values from (%L) to (%L)', v_name,
      p_day::timestamp at time zone 'UTC', (p_day + 1)::timestamp at time zone 'UTC');
  end if;
  return coalesce(v_rows, 0);
end
$$;

revoke all on function {partition_changes}, {may_partition}, {change_partition} from public;
