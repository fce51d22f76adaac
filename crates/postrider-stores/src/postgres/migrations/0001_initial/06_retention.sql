-- Creates the partitions into which queues archive from now on: one for each day on which messages expire. A message whose day has
-- no partition goes to the default partition, so a missing one loses nothing.
create function {make_partitions}() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_day date;
begin
  perform pg_advisory_xact_lock(hashtext('{#archive}'));
  for v_day in
    select distinct (clock_timestamp() at time zone 'UTC' + q.keep_for)::date + ahead
    from {queue} q, generate_series(0, 2) ahead where q.keep_for is not null
  loop
    if to_regclass(format('%I.%I', '{#schema}', '{#prefix}' || 'archive_' || to_char(v_day, 'YYYYMMDD'))) is null
       and not exists (
         select from {archive_rest} r
         where r.expires_at >= v_day::timestamp at time zone 'UTC'
           and r.expires_at < (v_day + 1)::timestamp at time zone 'UTC')
    then
      execute format(
        'create table %I.%I partition of {archive} for values from (%L) to (%L)',
        '{#schema}', '{#prefix}' || 'archive_' || to_char(v_day, 'YYYYMMDD'),
        v_day::timestamp at time zone 'UTC', (v_day + 1)::timestamp at time zone 'UTC');
    end if;
  end loop;
end
$$;

-- Drops the partitions of past days, and creates those of the coming days. Returns the number of rows dropped, according to the
-- statistics.
create function {drop_partitions}() returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_part record;
  v_rows bigint := 0;
begin
  perform {make_partitions}();
  for v_part in
    select c.oid::regclass as name, c.relname, greatest(c.reltuples, 0)::bigint as rows
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = '{archive}'::regclass
      and c.relname ~ ('^' || '{#prefix}' || 'archive_[0-9]{8}$')
      and to_date(right(c.relname, 8), 'YYYYMMDD') < (clock_timestamp() at time zone 'UTC')::date
  loop
    execute format('drop table %s', v_part.name);
    v_rows := v_rows + v_part.rows;
  end loop;
  return v_rows;
end
$$;

revoke all on function {make_partitions}, {drop_partitions} from public;
