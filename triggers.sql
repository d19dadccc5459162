-- What happens next in Cuelight's video pipeline: who is woken when a row
-- changes, whoever changed it; and the functions for people with only psql.
--
-- Load with psql -f after schema.sql; loading it again replaces what it made.
--
-- Written by `make sql`; change store/ddl/triggers.sql.tmpl instead.

begin;

-- What is here already must be Cuelight's.
do $$
declare theirs text;
begin
  select name into theirs
    from (values ('tasks', 'ingest_token'), ('attempts', 'token'),
                 ('history', 'token'), ('workers', 'beat_at')) as ours (name, its_column)
   where to_regclass(format('%I.%I', current_schema(), name)) is not null
     and not exists (select from pg_attribute
                      where attrelid = to_regclass(format('%I.%I', current_schema(), name))
                        and attname = its_column);
  if theirs is not null then
    raise exception 'schema % holds something named % that is not Cuelight''s', current_schema(), theirs
      using hint = 'Use a schema of its own: create schema cuelight; and search_path=cuelight in the connection string.';
  end if;
end
$$;

-- A wake carries no data: it says "look at this stage now". Where many rows
-- change in one transaction, PostgreSQL delivers it once. Where the server's queue
-- of notifications is nearly full, because somebody listens and does not read,
-- nobody is woken: the sweep finds the work, while a wake too many would have
-- made the whole transaction fail.
--
-- A stage is woken when it can be claimed, waits for another time or has become
-- more urgent, and that was not so before. A stage that is claimed in the
-- statement which completes what it needs is never seen here, and nobody is woken
-- for it.
--
-- Whatever happens is told in the outbox, too, in the same transaction.
create or replace function cuelight_video_submitted() returns trigger language plpgsql
set search_path from current set jit = off as $$
declare opened record;
begin
  select array_agg(id order by id) as ids,
         bool_or(greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) > 'pending' or overridden_by is not null) as further,
         bool_or(ingest_status in ('pending', 'failed')) as ingest_open,
         bool_or(transcode_status in ('pending', 'failed') and ingest_status = 'completed') as transcode_open,
         bool_or(metadata_status in ('pending', 'failed') and ingest_status = 'completed') as metadata_open,
         bool_or(assemble_status in ('pending', 'failed') and transcode_status = 'completed' and metadata_status = 'completed') as assemble_open,
         bool_or(publish_status in ('pending', 'failed') and assemble_status = 'completed') as publish_open
    into opened from added;
  if opened.ingest_open then
    perform pg_notify('cuelight_video_ingest', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if opened.transcode_open then
    perform pg_notify('cuelight_video_transcode', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if opened.metadata_open then
    perform pg_notify('cuelight_video_metadata', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if opened.assemble_open then
    perform pg_notify('cuelight_video_assemble', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if opened.publish_open then
    perform pg_notify('cuelight_video_publish', '') where pg_notification_queue_usage() < 0.9;
  end if;
  for n in 1..coalesce(cardinality(opened.ids), 0) by 1024 loop
    insert into outbox (type, tasks) values ('submitted', opened.ids[n:n + 1023]);
  end loop;
  if opened.further then -- imported tasks: recorded as if all had happened now
    with pairs as materialized (
      select id, id as old_id, null::uuid as old_overridden_by, overridden_by, '' as made_by,
             'pending'::cuelight_status as ingest_old_status, ingest_status,
             ingest_attempts as ingest_old_attempts, ingest_attempts, null::uuid as ingest_old_token, ingest_token,
             null::uuid as ingest_old_locked_by, ingest_locked_by, null::timestamptz as ingest_old_locked_at, ingest_run_at,
             'pending'::cuelight_status as transcode_old_status, transcode_status,
             transcode_attempts as transcode_old_attempts, transcode_attempts, null::uuid as transcode_old_token, transcode_token,
             null::uuid as transcode_old_locked_by, transcode_locked_by, null::timestamptz as transcode_old_locked_at, transcode_run_at,
             'pending'::cuelight_status as metadata_old_status, metadata_status,
             metadata_attempts as metadata_old_attempts, metadata_attempts, null::uuid as metadata_old_token, metadata_token,
             null::uuid as metadata_old_locked_by, metadata_locked_by, null::timestamptz as metadata_old_locked_at, metadata_run_at,
             'pending'::cuelight_status as assemble_old_status, assemble_status,
             assemble_attempts as assemble_old_attempts, assemble_attempts, null::uuid as assemble_old_token, assemble_token,
             null::uuid as assemble_old_locked_by, assemble_locked_by, null::timestamptz as assemble_old_locked_at, assemble_run_at,
             'pending'::cuelight_status as publish_old_status, publish_status,
             publish_attempts as publish_old_attempts, publish_attempts, null::uuid as publish_old_token, publish_token,
             null::uuid as publish_old_locked_by, publish_locked_by, null::timestamptz as publish_old_locked_at, publish_run_at
        from added
       where greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) > 'pending' or overridden_by is not null
    ), changes as materialized (
      select id, old_id, made_by, 0 as n, 'ingest' as stage, ingest_old_status as old_status, ingest_status as status,
             ingest_old_attempts as old_attempt, ingest_attempts as attempt, ingest_old_token as old_token, ingest_token as token,
             ingest_old_locked_by as old_worker, ingest_locked_by as worker, ingest_old_locked_at as locked_at, ingest_run_at as run_at
        from pairs
       where ingest_status <> ingest_old_status or ingest_token is distinct from ingest_old_token
      union all
      select id, old_id, made_by, 1 as n, 'transcode' as stage, transcode_old_status as old_status, transcode_status as status,
             transcode_old_attempts as old_attempt, transcode_attempts as attempt, transcode_old_token as old_token, transcode_token as token,
             transcode_old_locked_by as old_worker, transcode_locked_by as worker, transcode_old_locked_at as locked_at, transcode_run_at as run_at
        from pairs
       where transcode_status <> transcode_old_status or transcode_token is distinct from transcode_old_token
      union all
      select id, old_id, made_by, 2 as n, 'metadata' as stage, metadata_old_status as old_status, metadata_status as status,
             metadata_old_attempts as old_attempt, metadata_attempts as attempt, metadata_old_token as old_token, metadata_token as token,
             metadata_old_locked_by as old_worker, metadata_locked_by as worker, metadata_old_locked_at as locked_at, metadata_run_at as run_at
        from pairs
       where metadata_status <> metadata_old_status or metadata_token is distinct from metadata_old_token
      union all
      select id, old_id, made_by, 3 as n, 'assemble' as stage, assemble_old_status as old_status, assemble_status as status,
             assemble_old_attempts as old_attempt, assemble_attempts as attempt, assemble_old_token as old_token, assemble_token as token,
             assemble_old_locked_by as old_worker, assemble_locked_by as worker, assemble_old_locked_at as locked_at, assemble_run_at as run_at
        from pairs
       where assemble_status <> assemble_old_status or assemble_token is distinct from assemble_old_token
      union all
      select id, old_id, made_by, 4 as n, 'publish' as stage, publish_old_status as old_status, publish_status as status,
             publish_old_attempts as old_attempt, publish_attempts as attempt, publish_old_token as old_token, publish_token as token,
             publish_old_locked_by as old_worker, publish_locked_by as worker, publish_old_locked_at as locked_at, publish_run_at as run_at
        from pairs
       where publish_status <> publish_old_status or publish_token is distinct from publish_old_token
    ), taken as (
      -- A claim that is taken from its worker, by a cancel, a retry or by hand.
      insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
      select old_id, old_token, stage, old_attempt, old_worker, locked_at, 'cancelled' from changes
       where old_token is not null and old_token is distinct from token and status in ('pending', 'cancelled')
          on conflict do nothing
    ), happened as (
      select id, 1 as place, n, 'stage_completed' as type, stage, attempt, old_worker as worker_id, old_token as token, null::jsonb as data
        from changes where status = 'completed' and old_status <> 'completed'
       union all
      select id, 2, n, case made_by when 'sweep' then 'lease_recovered' else 'attempt_failed' end, stage, old_attempt, old_worker, old_token, null
        from changes where old_status = 'inprogress' and status in ('failed', 'dead')
       union all
      select id, 3, n, 'retry', stage, old_attempt, null, old_token, jsonb_build_object('run_at', coalesce(run_at, now()))
        from changes where status = 'failed' and old_status <> 'failed'
       union all
      select id, 3, n, 'dead_letter', stage, old_attempt, old_worker, old_token, null
        from changes where status = 'dead' and old_status <> 'dead'
       union all
      select id, 4, n, 'released', stage, old_attempt, old_worker, old_token, null
        from changes where status = 'pending' and old_status = 'inprogress' and made_by in ('turn', 'sweep')
       union all
      select id, 5, 0, 'retry', stages[1], null, null, null, jsonb_build_object('run_at', coalesce(run_at, now()), 'stages', stages)
        from (select id, coalesce(
                       case when ingest_status <> ingest_old_status then ingest_run_at end,
                       case when transcode_status <> transcode_old_status then transcode_run_at end,
                       case when metadata_status <> metadata_old_status then metadata_run_at end,
                       case when assemble_status <> assemble_old_status then assemble_run_at end,
                       case when publish_status <> publish_old_status then publish_run_at end) as run_at,
                     array_remove(array[
                     case when ingest_status = 'pending' and ingest_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and ingest_old_status = 'inprogress') then 'ingest' end,
                     case when transcode_status = 'pending' and transcode_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and transcode_old_status = 'inprogress') then 'transcode' end,
                     case when metadata_status = 'pending' and metadata_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and metadata_old_status = 'inprogress') then 'metadata' end,
                     case when assemble_status = 'pending' and assemble_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and assemble_old_status = 'inprogress') then 'assemble' end,
                     case when publish_status = 'pending' and publish_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and publish_old_status = 'inprogress') then 'publish' end], null) as stages from pairs) as again where stages <> '{}'
       union all
      select id, 6, 0, 'overridden', null, null, null, null, jsonb_build_object('overridden_by', overridden_by)
        from pairs where overridden_by is distinct from old_overridden_by and overridden_by is not null
       union all
      select id, 7, 0, 'cancelled', null, null, null, null, jsonb_build_object('stages', stages)
        from (select id, array_remove(array[
                     case when ingest_status = 'cancelled' and ingest_old_status <> 'cancelled' then 'ingest' end,
                     case when transcode_status = 'cancelled' and transcode_old_status <> 'cancelled' then 'transcode' end,
                     case when metadata_status = 'cancelled' and metadata_old_status <> 'cancelled' then 'metadata' end,
                     case when assemble_status = 'cancelled' and assemble_old_status <> 'cancelled' then 'assemble' end,
                     case when publish_status = 'cancelled' and publish_old_status <> 'cancelled' then 'publish' end], null) as stages from pairs) as ended where stages <> '{}'
       union all
      select id, 8, n, 'started', stage, attempt, worker, null, null
        from changes where status = 'inprogress' and token is distinct from old_token
       union all
      select id, 9, 0, 'done', null, null, null, null, null
        from pairs
       where ingest_status = 'completed' and transcode_status = 'completed' and metadata_status = 'completed' and assemble_status = 'completed' and publish_status = 'completed'
         and not (ingest_old_status = 'completed' and transcode_old_status = 'completed' and metadata_old_status = 'completed' and assemble_old_status = 'completed' and publish_old_status = 'completed')
    ), numbered as (
      select *, (row_number() over (partition by place, n, type, stage, worker_id, token, data order by id) - 1) / 1024 as part
        from happened
    )
    insert into outbox (type, stage, worker_id, token, data, attempt, task_id, tasks, attempts)
    select type, stage, worker_id, token, data,
           case when count(*) = 1 then min(attempt) end, case when count(*) = 1 then (array_agg(id))[1] end,
           case when count(*) > 1 then array_agg(id order by id) end, case when count(*) > 1 then array_agg(attempt order by id) end
      from numbered
     group by place, n, type, stage, worker_id, token, data, part
     order by place, n, part;
  end if;
  return null;
end
$$;

drop trigger if exists tasks_submitted on tasks;
create trigger tasks_submitted after insert on tasks
  referencing new table as added for each statement execute function cuelight_video_submitted();

-- Records what an update did to all its rows. An engine says in a setting of its transaction
-- that it is one: a sweep, in which claims only end because their workers did; or a
-- turn, which records in its own statements what it starts and completes. Statements
-- that record everything by themselves, and wake whom they should, say so, too
-- (recorded), and cost no call of this.
--
-- The old and the new rows come in the same order, so a row and its old version are
-- those with the same number, also where the id was changed. A full join cannot be a
-- nested loop, which would be planned after one row and take hours for a million.
create or replace function cuelight_video_changed() returns trigger language plpgsql
set search_path from current set jit = off as $$
declare
  engine  constant boolean := coalesce(current_setting('cuelight.made_by', true), '') <> '';
  effects record;
begin
  if not exists (select from new_rows) then -- as for most deleted tasks, which had replaced nothing
    return null;
  end if;
  select bool_or(case when engine then n.ingest_status <> o.ingest_status and n.ingest_status not in ('inprogress', 'completed')
                   or n.transcode_status <> o.transcode_status and n.transcode_status not in ('inprogress', 'completed')
                   or n.metadata_status <> o.metadata_status and n.metadata_status not in ('inprogress', 'completed')
                   or n.assemble_status <> o.assemble_status and n.assemble_status not in ('inprogress', 'completed')
                   or n.publish_status <> o.publish_status and n.publish_status not in ('inprogress', 'completed')
                 else n.overridden_by is distinct from o.overridden_by
                   or n.ingest_status <> o.ingest_status or n.ingest_token is distinct from o.ingest_token
                   or n.transcode_status <> o.transcode_status or n.transcode_token is distinct from o.transcode_token
                   or n.metadata_status <> o.metadata_status or n.metadata_token is distinct from o.metadata_token
                   or n.assemble_status <> o.assemble_status or n.assemble_token is distinct from o.assemble_token
                   or n.publish_status <> o.publish_status or n.publish_token is distinct from o.publish_token end) as recorded,
         bool_or(o.ingest_status = 'inprogress' and n.ingest_status in ('pending', 'cancelled')
           or o.transcode_status = 'inprogress' and n.transcode_status in ('pending', 'cancelled')
           or o.metadata_status = 'inprogress' and n.metadata_status in ('pending', 'cancelled')
           or o.assemble_status = 'inprogress' and n.assemble_status in ('pending', 'cancelled')
           or o.publish_status = 'inprogress' and n.publish_status in ('pending', 'cancelled')) as recalled,
         bool_or(n.ingest_status in ('pending', 'failed')
           and (not (o.ingest_status in ('pending', 'failed'))
                or n.ingest_run_at is distinct from o.ingest_run_at
                or n.priority > o.priority)) as ingest_open,
         bool_or(n.transcode_status in ('pending', 'failed') and n.ingest_status = 'completed'
           and (not (o.transcode_status in ('pending', 'failed') and o.ingest_status = 'completed')
                or n.transcode_run_at is distinct from o.transcode_run_at
                or n.priority > o.priority)) as transcode_open,
         bool_or(n.metadata_status in ('pending', 'failed') and n.ingest_status = 'completed'
           and (not (o.metadata_status in ('pending', 'failed') and o.ingest_status = 'completed')
                or n.metadata_run_at is distinct from o.metadata_run_at
                or n.priority > o.priority)) as metadata_open,
         bool_or(n.assemble_status in ('pending', 'failed') and n.transcode_status = 'completed' and n.metadata_status = 'completed'
           and (not (o.assemble_status in ('pending', 'failed') and o.transcode_status = 'completed' and o.metadata_status = 'completed')
                or n.assemble_run_at is distinct from o.assemble_run_at
                or n.priority > o.priority)) as assemble_open,
         bool_or(n.publish_status in ('pending', 'failed') and n.assemble_status = 'completed'
           and (not (o.publish_status in ('pending', 'failed') and o.assemble_status = 'completed')
                or n.publish_run_at is distinct from o.publish_run_at
                or n.priority > o.priority)) as publish_open
    into effects
    from (select row_number() over () as number, * from old_rows) o
    full join (select row_number() over () as number, * from new_rows) n using (number);
  if effects.ingest_open then
    perform pg_notify('cuelight_video_ingest', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if effects.transcode_open then
    perform pg_notify('cuelight_video_transcode', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if effects.metadata_open then
    perform pg_notify('cuelight_video_metadata', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if effects.assemble_open then
    perform pg_notify('cuelight_video_assemble', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if effects.publish_open then
    perform pg_notify('cuelight_video_publish', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if effects.recalled then
    perform pg_notify('cuelight_video', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if effects.recorded then
    with pairs as materialized (
      select n.id, o.id as old_id, o.overridden_by as old_overridden_by, n.overridden_by,
             coalesce(current_setting('cuelight.made_by', true), '') as made_by,
             o.ingest_status as ingest_old_status, n.ingest_status,
             o.ingest_attempts as ingest_old_attempts, n.ingest_attempts, o.ingest_token as ingest_old_token, n.ingest_token,
             o.ingest_locked_by as ingest_old_locked_by, n.ingest_locked_by, o.ingest_locked_at as ingest_old_locked_at, n.ingest_run_at,
             o.transcode_status as transcode_old_status, n.transcode_status,
             o.transcode_attempts as transcode_old_attempts, n.transcode_attempts, o.transcode_token as transcode_old_token, n.transcode_token,
             o.transcode_locked_by as transcode_old_locked_by, n.transcode_locked_by, o.transcode_locked_at as transcode_old_locked_at, n.transcode_run_at,
             o.metadata_status as metadata_old_status, n.metadata_status,
             o.metadata_attempts as metadata_old_attempts, n.metadata_attempts, o.metadata_token as metadata_old_token, n.metadata_token,
             o.metadata_locked_by as metadata_old_locked_by, n.metadata_locked_by, o.metadata_locked_at as metadata_old_locked_at, n.metadata_run_at,
             o.assemble_status as assemble_old_status, n.assemble_status,
             o.assemble_attempts as assemble_old_attempts, n.assemble_attempts, o.assemble_token as assemble_old_token, n.assemble_token,
             o.assemble_locked_by as assemble_old_locked_by, n.assemble_locked_by, o.assemble_locked_at as assemble_old_locked_at, n.assemble_run_at,
             o.publish_status as publish_old_status, n.publish_status,
             o.publish_attempts as publish_old_attempts, n.publish_attempts, o.publish_token as publish_old_token, n.publish_token,
             o.publish_locked_by as publish_old_locked_by, n.publish_locked_by, o.publish_locked_at as publish_old_locked_at, n.publish_run_at
        from (select row_number() over () as number, * from old_rows) o
        full join (select row_number() over () as number, * from new_rows) n using (number)
    ), changes as materialized (
      select id, old_id, made_by, 0 as n, 'ingest' as stage, ingest_old_status as old_status, ingest_status as status,
             ingest_old_attempts as old_attempt, ingest_attempts as attempt, ingest_old_token as old_token, ingest_token as token,
             ingest_old_locked_by as old_worker, ingest_locked_by as worker, ingest_old_locked_at as locked_at, ingest_run_at as run_at
        from pairs
       where ingest_status <> ingest_old_status or ingest_token is distinct from ingest_old_token
      union all
      select id, old_id, made_by, 1 as n, 'transcode' as stage, transcode_old_status as old_status, transcode_status as status,
             transcode_old_attempts as old_attempt, transcode_attempts as attempt, transcode_old_token as old_token, transcode_token as token,
             transcode_old_locked_by as old_worker, transcode_locked_by as worker, transcode_old_locked_at as locked_at, transcode_run_at as run_at
        from pairs
       where transcode_status <> transcode_old_status or transcode_token is distinct from transcode_old_token
      union all
      select id, old_id, made_by, 2 as n, 'metadata' as stage, metadata_old_status as old_status, metadata_status as status,
             metadata_old_attempts as old_attempt, metadata_attempts as attempt, metadata_old_token as old_token, metadata_token as token,
             metadata_old_locked_by as old_worker, metadata_locked_by as worker, metadata_old_locked_at as locked_at, metadata_run_at as run_at
        from pairs
       where metadata_status <> metadata_old_status or metadata_token is distinct from metadata_old_token
      union all
      select id, old_id, made_by, 3 as n, 'assemble' as stage, assemble_old_status as old_status, assemble_status as status,
             assemble_old_attempts as old_attempt, assemble_attempts as attempt, assemble_old_token as old_token, assemble_token as token,
             assemble_old_locked_by as old_worker, assemble_locked_by as worker, assemble_old_locked_at as locked_at, assemble_run_at as run_at
        from pairs
       where assemble_status <> assemble_old_status or assemble_token is distinct from assemble_old_token
      union all
      select id, old_id, made_by, 4 as n, 'publish' as stage, publish_old_status as old_status, publish_status as status,
             publish_old_attempts as old_attempt, publish_attempts as attempt, publish_old_token as old_token, publish_token as token,
             publish_old_locked_by as old_worker, publish_locked_by as worker, publish_old_locked_at as locked_at, publish_run_at as run_at
        from pairs
       where publish_status <> publish_old_status or publish_token is distinct from publish_old_token
    ), taken as (
      -- A claim that is taken from its worker, by a cancel, a retry or by hand.
      insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
      select old_id, old_token, stage, old_attempt, old_worker, locked_at, 'cancelled' from changes
       where old_token is not null and old_token is distinct from token and status in ('pending', 'cancelled')
          on conflict do nothing
    ), happened as (
      select id, 1 as place, n, 'stage_completed' as type, stage, attempt, old_worker as worker_id, old_token as token, null::jsonb as data
        from changes where status = 'completed' and old_status <> 'completed'
       union all
      select id, 2, n, case made_by when 'sweep' then 'lease_recovered' else 'attempt_failed' end, stage, old_attempt, old_worker, old_token, null
        from changes where old_status = 'inprogress' and status in ('failed', 'dead')
       union all
      select id, 3, n, 'retry', stage, old_attempt, null, old_token, jsonb_build_object('run_at', coalesce(run_at, now()))
        from changes where status = 'failed' and old_status <> 'failed'
       union all
      select id, 3, n, 'dead_letter', stage, old_attempt, old_worker, old_token, null
        from changes where status = 'dead' and old_status <> 'dead'
       union all
      select id, 4, n, 'released', stage, old_attempt, old_worker, old_token, null
        from changes where status = 'pending' and old_status = 'inprogress' and made_by in ('turn', 'sweep')
       union all
      select id, 5, 0, 'retry', stages[1], null, null, null, jsonb_build_object('run_at', coalesce(run_at, now()), 'stages', stages)
        from (select id, coalesce(
                       case when ingest_status <> ingest_old_status then ingest_run_at end,
                       case when transcode_status <> transcode_old_status then transcode_run_at end,
                       case when metadata_status <> metadata_old_status then metadata_run_at end,
                       case when assemble_status <> assemble_old_status then assemble_run_at end,
                       case when publish_status <> publish_old_status then publish_run_at end) as run_at,
                     array_remove(array[
                     case when ingest_status = 'pending' and ingest_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and ingest_old_status = 'inprogress') then 'ingest' end,
                     case when transcode_status = 'pending' and transcode_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and transcode_old_status = 'inprogress') then 'transcode' end,
                     case when metadata_status = 'pending' and metadata_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and metadata_old_status = 'inprogress') then 'metadata' end,
                     case when assemble_status = 'pending' and assemble_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and assemble_old_status = 'inprogress') then 'assemble' end,
                     case when publish_status = 'pending' and publish_old_status <> 'pending'
                           and not (made_by in ('turn', 'sweep') and publish_old_status = 'inprogress') then 'publish' end], null) as stages from pairs) as again where stages <> '{}'
       union all
      select id, 6, 0, 'overridden', null, null, null, null, jsonb_build_object('overridden_by', overridden_by)
        from pairs where overridden_by is distinct from old_overridden_by and overridden_by is not null
       union all
      select id, 7, 0, 'cancelled', null, null, null, null, jsonb_build_object('stages', stages)
        from (select id, array_remove(array[
                     case when ingest_status = 'cancelled' and ingest_old_status <> 'cancelled' then 'ingest' end,
                     case when transcode_status = 'cancelled' and transcode_old_status <> 'cancelled' then 'transcode' end,
                     case when metadata_status = 'cancelled' and metadata_old_status <> 'cancelled' then 'metadata' end,
                     case when assemble_status = 'cancelled' and assemble_old_status <> 'cancelled' then 'assemble' end,
                     case when publish_status = 'cancelled' and publish_old_status <> 'cancelled' then 'publish' end], null) as stages from pairs) as ended where stages <> '{}'
       union all
      select id, 8, n, 'started', stage, attempt, worker, null, null
        from changes where status = 'inprogress' and token is distinct from old_token
       union all
      select id, 9, 0, 'done', null, null, null, null, null
        from pairs
       where ingest_status = 'completed' and transcode_status = 'completed' and metadata_status = 'completed' and assemble_status = 'completed' and publish_status = 'completed'
         and not (ingest_old_status = 'completed' and transcode_old_status = 'completed' and metadata_old_status = 'completed' and assemble_old_status = 'completed' and publish_old_status = 'completed')
    ), numbered as (
      select *, (row_number() over (partition by place, n, type, stage, worker_id, token, data order by id) - 1) / 1024 as part
        from happened
    )
    insert into outbox (type, stage, worker_id, token, data, attempt, task_id, tasks, attempts)
    select type, stage, worker_id, token, data,
           case when count(*) = 1 then min(attempt) end, case when count(*) = 1 then (array_agg(id))[1] end,
           case when count(*) > 1 then array_agg(id order by id) end, case when count(*) > 1 then array_agg(attempt order by id) end
      from numbered
     group by place, n, type, stage, worker_id, token, data, part
     order by place, n, part;
  end if;
  if not engine then -- an engine tells the readers itself, now and then
    perform pg_notify('cuelight_video_events', '') where pg_notification_queue_usage() < 0.9;
  end if;
  return null;
end
$$;

drop trigger if exists tasks_changed on tasks;
create trigger tasks_changed after update on tasks
  referencing old table as old_rows new table as new_rows
  for each statement when (coalesce(current_setting('cuelight.made_by', true), '') <> 'recorded')
  execute function cuelight_video_changed();

-- Up to version 4 each row was recorded by itself.
drop function if exists cuelight_video_tell(tasks, tasks, text);

-- Deleting a task deletes its history. A task that it had replaced is replaced by nothing
-- any more (on delete set null): it stays at rest, cancelled, dead or completed, until
-- somebody retries it.
create or replace function cuelight_video_forget() returns trigger language plpgsql
set search_path from current set jit = off as $$
declare ids constant uuid[] := array(select id from gone order by id);
begin
  delete from attempts where task_id = any(ids);
  for n in 1..cardinality(ids) by 1024 loop
    insert into outbox (type, tasks) values ('deleted', ids[n:n + 1023]);
  end loop;
  perform pg_notify('cuelight_video', '') where pg_notification_queue_usage() < 0.9;
  return null;
end
$$;

drop trigger if exists tasks_forget on tasks;
create trigger tasks_forget after delete on tasks
  referencing old table as gone for each statement execute function cuelight_video_forget();

-- TRUNCATE deletes all of them.
create or replace function cuelight_video_forget_all() returns trigger language plpgsql set search_path from current as $$
begin
  delete from attempts;
  insert into outbox (type, tasks)
  select 'deleted', array_agg(id order by id) from (select id, row_number() over (order by id) - 1 as n from tasks) as each
   group by n / 1024 order by n / 1024;
  perform pg_notify('cuelight_video', '') where pg_notification_queue_usage() < 0.9;
  return null;
end
$$;

drop trigger if exists tasks_forget_all on tasks;
create trigger tasks_forget_all before truncate on tasks
  for each statement execute function cuelight_video_forget_all();

-- Whoever works here is told at once of what is not to be claimed for now, and of
-- who wants to be told of events.
create or replace function cuelight_wanted() returns trigger language plpgsql as $$
begin
  perform pg_notify('cuelight_' || coalesce(new.pipeline, old.pipeline), '') where pg_notification_queue_usage() < 0.9;
  return null;
end
$$;

drop trigger if exists cuelight_pauses_changed on cuelight_pauses;
create trigger cuelight_pauses_changed after insert or update or delete on cuelight_pauses
  for each row execute function cuelight_wanted();

drop trigger if exists cuelight_webhooks_changed on cuelight_webhooks;
create trigger cuelight_webhooks_changed after insert or update of disabled_at on cuelight_webhooks
  for each row execute function cuelight_wanted();

-- A worker's sign of life. It writes the worker's row, and reads nothing but workers,
-- so a lock on any other table cannot hold it up. It says whether another worker of
-- the pipeline is silent for so long that it may be gone. It is a function because to prepare a
-- statement takes locks, too, before any limit can be set; and it waits for a lock on
-- the row, or on workers, no longer than it is told.
--
-- It does not wait for the disk: a heartbeat that is lost with a crash of the server
-- is made good by the next one.
create or replace function cuelight_heartbeat(worker uuid, doing jsonb, session_key bigint, wait_ms integer)
  returns table (known boolean, draining boolean, silent boolean, at timestamptz) language plpgsql set search_path from current as $$
begin
  perform set_config('lock_timeout', wait_ms || 'ms', true), set_config('synchronous_commit', 'off', true),
          set_config('application_name', 'cuelight ' || worker, true),
          case when current_setting('server_version_num')::integer >= 170000
               then set_config('transaction_timeout', '30s', true) end;
  return query
  with beat as (
    update workers w set beat_at = clock_timestamp(), running = doing, session = coalesce(session_key, w.session)
     where w.id = worker and w.stopped_at is null and w.lost_at is null
    returning w.pipeline, w.drain_at
  )
  select exists (select from beat), (select drain_at is not null from beat),
         exists (select from workers w
                  where w.pipeline = (select pipeline from beat) and w.id <> worker and w.stopped_at is null and w.lost_at is null
                    and greatest(clock_timestamp() - w.beat_at, w.beat_at - clock_timestamp()) > least(w.lease / 5, interval '7 s')),
         now();
end
$$;

-- Read the events after an id that was seen, in order, none of them missed and
-- none twice; of all tasks or of one:
--   select * from cuelight_video_events(0);
-- It fails with SQLSTATE CL001 where some of them have been deleted, and where the id
-- is of none that can have been seen here: it is from before the database was restored
-- or made anew.
create or replace function cuelight_video_events(after bigint default 0, most integer default 1000, task uuid default null)
  returns setof events language plpgsql set search_path from current as $$
declare
  first bigint := after >> 16;
  last  bigint := cuelight_complete('outbox_id');
  drawn constant bigint := coalesce(pg_sequence_last_value('outbox_id'), 0);
  since timestamptz;
  until bigint := last + 1;
  half  outbox;
  one   constant uuid[] := array[task];
  moved constant jsonb := jsonb_build_array(jsonb_build_object('task', task));
  those bigint[];
begin
  -- As many rows as hold that many events, and none has to be told in vain.
  if task is not null then
    -- Nothing is told of a task before it is there. An id of version 7 says when that
    -- was, and rows lie in the order of time; an hour is for clocks that were set.
    if substr(task::text, 15, 1) = '7' then
      since := least(to_timestamp(('x0000' || left(replace(task::text, '-', ''), 12))::bit(64)::bigint / 1000.0),
                     (select created_at from tasks where id = task)) - interval '1 hour';
      while first < until loop
        select * into half from outbox o where o.id >= (first + until) / 2 and o.id < until order by o.id limit 1;
        if half.at < since then
          first := half.id + 1;
        else
          until := (first + until) / 2;
        end if;
      end loop;
    end if;
    those := array(
      select o.id from outbox o
       where o.id between first and last
         and (o.task_id = task or o.tasks @> one or o.type = 'progress' and o.data @> moved)
       order by o.id limit most + 1);
    return query
      select * from events e
       where e.outbox_id = any(those) and e.id > after and e.task_id = task
       order by e.id limit most;
  else
    select max(id) into last
      from (select o.id, sum(case when o.id = first then 0 else coalesce(cardinality(o.tasks), 1) end)
                         over (order by o.id rows between unbounded preceding and 1 preceding) as before
              from (select * from outbox o
                     where o.id between first and last
                     order by o.id limit most + 1) as o) as few
     where before is null or before < most;
    return query
      select * from events e
       where e.outbox_id between first and last and e.id > after
       order by e.id limit most;
  end if;
  -- This comes last: what was there a moment ago may be deleted by the time it is read.
  if after > 0 and after < (select forgotten from cuelight_schema where pipeline = 'video') then
    raise exception 'events after % have been deleted', after
      using errcode = 'CL001', hint = 'Begin anew with what the tasks are now, and go on from there.';
  end if;
  -- After a crash the next place is far beyond all that was drawn before it.
  if after >> 16 > drawn and (after >> 16 > drawn + 1048576 or exists (
       select from cuelight_uncrashed where seq = 'outbox_id'::regclass and cluster = cuelight_cluster())) then
    raise exception 'there was never an event %', after
      using errcode = 'CL001', hint = 'It is from another database, or from what this one was before. Begin anew with what the tasks are now.';
  end if;
end
$$;

-- How a task as a whole stands. It is scheduled while it waits for the time it was
-- submitted for and nothing of it was ever tried.
create or replace function cuelight_video_status(t tasks) returns text language sql stable as $$
  select (case when 'dead' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'dead'
       when 'cancelled' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'cancelled'
       when least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) = 'completed'
        and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) = 'completed' then 'completed'
       when 'inprogress' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'inprogress'
       when 'failed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'failed'
       when 'completed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'inprogress'
       when t.ingest_run_at is not null
        and greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts, t.publish_attempts) = 0 and t.ready_at is null then 'scheduled'
       else 'pending' end)
$$;

-- Do a stage again, and everything after it, of many tasks in one statement:
--   select cuelight_video_retry_tasks(array(select id from tasks where …), 'ingest');
-- Without a stage: do whatever died, failed or was cancelled; a task that was
-- cancelled before the time it was submitted for waits for that. A running stage
-- that has to be done again is taken from its worker. It returns how many tasks
-- there were.
create or replace function cuelight_video_retry_tasks(chosen uuid[], from_stage text default null) returns bigint
language plpgsql set search_path from current set jit = off as $$
declare retried bigint;
begin
  if from_stage is not null and from_stage not in ('ingest', 'transcode', 'metadata', 'assemble', 'publish') then
    raise exception 'there is no stage %', quote_literal(from_stage)
      using errcode = 'invalid_parameter_value', hint = 'The stages are ingest, transcode, metadata, assemble, publish.';
  end if;
  with again as (
    select id,
           case when from_stage is null then ingest_status in ('dead', 'failed', 'cancelled')
                else from_stage in ('ingest') end as ingest_again,
           case when from_stage is null then transcode_status in ('dead', 'failed', 'cancelled')
                else from_stage in ('ingest', 'transcode') end as transcode_again,
           case when from_stage is null then metadata_status in ('dead', 'failed', 'cancelled')
                else from_stage in ('ingest', 'metadata') end as metadata_again,
           case when from_stage is null then assemble_status in ('dead', 'failed', 'cancelled')
                else from_stage in ('ingest', 'transcode', 'metadata', 'assemble') end as assemble_again,
           case when from_stage is null then publish_status in ('dead', 'failed', 'cancelled')
                else from_stage in ('ingest', 'transcode', 'metadata', 'assemble', 'publish') end as publish_again
      from tasks where id = any(chosen) order by id for no key update
  )
  update tasks t set
    ingest_status    = case when ingest_again then 'pending' else ingest_status end,
    ingest_attempts  = case when ingest_again then 0 else ingest_attempts end,
    ingest_token     = case when ingest_again then null else ingest_token end,
    ingest_locked_at = case when ingest_again then null else ingest_locked_at end,
    ingest_locked_by = case when ingest_again then null else ingest_locked_by end,
    ingest_run_at    = case when not ingest_again then ingest_run_at
                          when from_stage is null and ingest_status = 'cancelled' and scheduled_at > now() then scheduled_at end,
    transcode_status    = case when transcode_again then 'pending' else transcode_status end,
    transcode_attempts  = case when transcode_again then 0 else transcode_attempts end,
    transcode_token     = case when transcode_again then null else transcode_token end,
    transcode_locked_at = case when transcode_again then null else transcode_locked_at end,
    transcode_locked_by = case when transcode_again then null else transcode_locked_by end,
    transcode_run_at    = case when not transcode_again then transcode_run_at end,
    metadata_status    = case when metadata_again then 'pending' else metadata_status end,
    metadata_attempts  = case when metadata_again then 0 else metadata_attempts end,
    metadata_token     = case when metadata_again then null else metadata_token end,
    metadata_locked_at = case when metadata_again then null else metadata_locked_at end,
    metadata_locked_by = case when metadata_again then null else metadata_locked_by end,
    metadata_run_at    = case when not metadata_again then metadata_run_at end,
    assemble_status    = case when assemble_again then 'pending' else assemble_status end,
    assemble_attempts  = case when assemble_again then 0 else assemble_attempts end,
    assemble_token     = case when assemble_again then null else assemble_token end,
    assemble_locked_at = case when assemble_again then null else assemble_locked_at end,
    assemble_locked_by = case when assemble_again then null else assemble_locked_by end,
    assemble_run_at    = case when not assemble_again then assemble_run_at end,
    publish_status    = case when publish_again then 'pending' else publish_status end,
    publish_attempts  = case when publish_again then 0 else publish_attempts end,
    publish_token     = case when publish_again then null else publish_token end,
    publish_locked_at = case when publish_again then null else publish_locked_at end,
    publish_locked_by = case when publish_again then null else publish_locked_by end,
    publish_run_at    = case when not publish_again then publish_run_at end,
    ready_at = case when (case when ingest_again then from_stage is null and ingest_status = 'cancelled' and scheduled_at > now()
                          else ingest_status = 'pending' and ingest_attempts = 0 and ingest_run_at is not null and ready_at is null end)
                    then null else now() end, -- null: it is scheduled
    scheduled_at = null
   from again
  where t.id = again.id;
  get diagnostics retried = row_count;
  return retried;
end
$$;

-- The same of one task, which it returns:
--   select cuelight_video_retry('<task id>', 'ingest');
create or replace function cuelight_video_retry(task uuid, from_stage text default null) returns setof tasks
language plpgsql set search_path from current as $$
begin
  perform cuelight_video_retry_tasks(array[task], from_stage);
  return query select * from tasks where id = task;
end
$$;

-- Cancel a task: what is not done yet will not be, and what is running is
-- taken from its worker and stopped. The time it was submitted for is kept for a retry.
--   select cuelight_video_cancel('<task id>');
create or replace function cuelight_video_cancel(task uuid) returns setof tasks
language sql set search_path from current as $$
  update tasks t set
    ingest_status    = case when ingest_status in ('completed', 'dead') then ingest_status else 'cancelled' end,
    ingest_token     = null,
    ingest_locked_at = null,
    ingest_locked_by = null,
    ingest_run_at    = null,
    transcode_status    = case when transcode_status in ('completed', 'dead') then transcode_status else 'cancelled' end,
    transcode_token     = null,
    transcode_locked_at = null,
    transcode_locked_by = null,
    transcode_run_at    = null,
    metadata_status    = case when metadata_status in ('completed', 'dead') then metadata_status else 'cancelled' end,
    metadata_token     = null,
    metadata_locked_at = null,
    metadata_locked_by = null,
    metadata_run_at    = null,
    assemble_status    = case when assemble_status in ('completed', 'dead') then assemble_status else 'cancelled' end,
    assemble_token     = null,
    assemble_locked_at = null,
    assemble_locked_by = null,
    assemble_run_at    = null,
    publish_status    = case when publish_status in ('completed', 'dead') then publish_status else 'cancelled' end,
    publish_token     = null,
    publish_locked_at = null,
    publish_locked_by = null,
    publish_run_at    = null,
    scheduled_at = coalesce(greatest(case when ingest_status = 'pending' and ingest_attempts = 0 and ready_at is null then ingest_run_at end), scheduled_at)
  where t.id = task
  returning t.*
$$;

-- Triggers write the history and the outbox in the name of their owner, so whoever
-- submits or changes tasks needs to be allowed no more than that. Such a function
-- must find nothing but what belongs here, so each has a search_path of its own, with
-- the temporary tables, which anybody may make, at its end.
do $$
declare f regprocedure;
begin
  for f in
    select oid from pg_proc
     where pronamespace = current_schema()::regnamespace and array_to_string(proconfig, ' ') ~ 'search_path='
       and (proname ~ '^cuelight_video_' or proname ~ '^cuelight_(heartbeat|database_id|order_secret|first_place|open_places|complete)$')
  loop
    execute format('alter function %s set search_path = %I, pg_temp', f, current_schema());
  end loop;
  for f in
    select distinct tgfoid from pg_trigger join pg_proc p on p.oid = tgfoid
     where tgrelid = format('%I.%I', current_schema(), 'tasks')::regclass and not tgisinternal
       and proname ~ '^cuelight_video_'
  loop
    execute format('alter function %s security definer', f);
  end loop;
end
$$;

insert into cuelight_schema (pipeline, version, shape)
values ('video', 5, 'ingest; transcode needs ingest; metadata needs ingest; assemble needs transcode, metadata; publish needs assemble')
on conflict (pipeline) do nothing;

commit;
