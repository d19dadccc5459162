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
create or replace function cuelight_video_submitted() returns trigger language plpgsql set search_path from current as $$
declare
  opened record;
  born   tasks;
  now    tasks;
begin
  select array_agg(id order by id) as ids, bool_or(greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) > 'pending' or overridden_by is not null) as further, bool_or(ingest_status in ('pending', 'failed')) as ingest_open, bool_or(transcode_status in ('pending', 'failed') and ingest_status = 'completed') as transcode_open, bool_or(metadata_status in ('pending', 'failed') and ingest_status = 'completed') as metadata_open, bool_or(assemble_status in ('pending', 'failed') and transcode_status = 'completed' and metadata_status = 'completed') as assemble_open, bool_or(publish_status in ('pending', 'failed') and assemble_status = 'completed') as publish_open into opened from added;
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
  if opened.further then -- somebody brings tasks from elsewhere: as if all had happened now
    for now in select * from added where greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) > 'pending' or overridden_by is not null order by id loop
      born := now;
      born.overridden_by := null;
      born.ingest_status := 'pending'; born.ingest_token := null;
      born.transcode_status := 'pending'; born.transcode_token := null;
      born.metadata_status := 'pending'; born.metadata_token := null;
      born.assemble_status := 'pending'; born.assemble_token := null;
      born.publish_status := 'pending'; born.publish_token := null;
      perform cuelight_video_tell(born, now, '');
    end loop;
  end if;
  return null;
end
$$;

drop trigger if exists tasks_submitted on tasks;
create trigger tasks_submitted after insert on tasks
  referencing new table as added for each statement execute function cuelight_video_submitted();

-- What is told of a change to a task. An engine tells of what it starts and
-- completes in the statements that do so, and says in a setting of its transaction
-- that it is one: a turn, or a sweep, in which claims only end because their
-- workers did.
create or replace function cuelight_video_tell(old tasks, new tasks, made_by text) returns void
language sql set search_path from current as $$
  with was as (
    select * from (values
      (0, 'ingest', old.ingest_status, new.ingest_status, old.ingest_attempts, new.ingest_attempts, old.ingest_token, new.ingest_token,
       old.ingest_locked_by, new.ingest_locked_by, new.ingest_run_at),
      (1, 'transcode', old.transcode_status, new.transcode_status, old.transcode_attempts, new.transcode_attempts, old.transcode_token, new.transcode_token,
       old.transcode_locked_by, new.transcode_locked_by, new.transcode_run_at),
      (2, 'metadata', old.metadata_status, new.metadata_status, old.metadata_attempts, new.metadata_attempts, old.metadata_token, new.metadata_token,
       old.metadata_locked_by, new.metadata_locked_by, new.metadata_run_at),
      (3, 'assemble', old.assemble_status, new.assemble_status, old.assemble_attempts, new.assemble_attempts, old.assemble_token, new.assemble_token,
       old.assemble_locked_by, new.assemble_locked_by, new.assemble_run_at),
      (4, 'publish', old.publish_status, new.publish_status, old.publish_attempts, new.publish_attempts, old.publish_token, new.publish_token,
       old.publish_locked_by, new.publish_locked_by, new.publish_run_at)
    ) as s (n, stage, before, now, attempt, attempt_now, token, token_now, worker_id, worker_now, run_at)
  ), again as (
    select min(n) as n, array_agg(stage order by n) as stages from was
     where now = 'pending' and before <> 'pending' and not (made_by in ('turn', 'sweep') and before = 'inprogress')
    having count(*) > 0
  )
  insert into outbox (type, stage, attempt, worker_id, token, data, task_id)
  select type, stage, attempt, worker_id, token, data, new.id
    from (
      select 1 as place, n, 'stage_completed' as type, stage, attempt_now as attempt, worker_id, token, null::jsonb as data
        from was where now = 'completed' and before <> 'completed' and made_by <> 'turn'
       union all
      select 2, n, case made_by when 'sweep' then 'lease_recovered' else 'attempt_failed' end, stage, attempt, worker_id, token, null
        from was where before = 'inprogress' and now in ('failed', 'dead')
       union all
      select 3, n, 'retry', stage, attempt, null, token, jsonb_build_object('run_at', coalesce(run_at, now()))
        from was where now = 'failed' and before <> 'failed'
       union all
      select 3, n, 'dead_letter', stage, attempt, worker_id, token, null
        from was where now = 'dead' and before <> 'dead'
       union all
      select 4, n, 'released', stage, attempt, worker_id, token, null
        from was where now = 'pending' and before = 'inprogress' and made_by in ('turn', 'sweep')
       union all
      select 5, n, 'retry', stages[1], null, null, null, jsonb_build_object('run_at', now(), 'stages', stages) from again
       union all
      select 6, 0, 'overridden', null, null, null, null, jsonb_build_object('overridden_by', new.overridden_by)
       where new.overridden_by is distinct from old.overridden_by and new.overridden_by is not null
       union all
      select 7, 0, 'cancelled', null, null, null, null, jsonb_build_object('stages', array_agg(stage order by n))
        from was where now = 'cancelled' and before <> 'cancelled' having count(*) > 0
       union all
      select 8, n, 'started', stage, attempt_now, worker_now, null, null
        from was where now = 'inprogress' and token_now is distinct from token and made_by <> 'turn'
       union all
      select 9, 0, 'done', null, null, null, null, null
        from was having bool_and(now = 'completed') and not bool_and(before = 'completed') and made_by <> 'turn'
    ) as told
   order by place, n
$$;

-- A stage that is taken from its worker, by a cancel, a retry or by hand, so
-- that it is cancelled or to be done again, leaves its claim in the history, and
-- the workers are told to check what they hold.
create or replace function cuelight_video_changed() returns trigger language plpgsql set search_path from current as $$
declare made_by constant text := coalesce(current_setting('cuelight.made_by', true), '');
begin
  if new.ingest_status in ('pending', 'failed')
     and (not (old.ingest_status in ('pending', 'failed'))
          or new.ingest_run_at is distinct from old.ingest_run_at
          or new.priority > old.priority) then
    perform pg_notify('cuelight_video_ingest', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if new.transcode_status in ('pending', 'failed') and new.ingest_status = 'completed'
     and (not (old.transcode_status in ('pending', 'failed') and old.ingest_status = 'completed')
          or new.transcode_run_at is distinct from old.transcode_run_at
          or new.priority > old.priority) then
    perform pg_notify('cuelight_video_transcode', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if new.metadata_status in ('pending', 'failed') and new.ingest_status = 'completed'
     and (not (old.metadata_status in ('pending', 'failed') and old.ingest_status = 'completed')
          or new.metadata_run_at is distinct from old.metadata_run_at
          or new.priority > old.priority) then
    perform pg_notify('cuelight_video_metadata', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if new.assemble_status in ('pending', 'failed') and new.transcode_status = 'completed' and new.metadata_status = 'completed'
     and (not (old.assemble_status in ('pending', 'failed') and old.transcode_status = 'completed' and old.metadata_status = 'completed')
          or new.assemble_run_at is distinct from old.assemble_run_at
          or new.priority > old.priority) then
    perform pg_notify('cuelight_video_assemble', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if new.publish_status in ('pending', 'failed') and new.assemble_status = 'completed'
     and (not (old.publish_status in ('pending', 'failed') and old.assemble_status = 'completed')
          or new.publish_run_at is distinct from old.publish_run_at
          or new.priority > old.priority) then
    perform pg_notify('cuelight_video_publish', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if old.ingest_status = 'inprogress' and new.ingest_status in ('pending', 'cancelled')
     or old.transcode_status = 'inprogress' and new.transcode_status in ('pending', 'cancelled')
     or old.metadata_status = 'inprogress' and new.metadata_status in ('pending', 'cancelled')
     or old.assemble_status = 'inprogress' and new.assemble_status in ('pending', 'cancelled')
     or old.publish_status = 'inprogress' and new.publish_status in ('pending', 'cancelled') then
    insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
    select old.id, was.token, was.stage, was.attempt, was.worker_id, was.started_at, 'cancelled'
      from (values
        ('ingest', old.ingest_token, new.ingest_token, new.ingest_status, old.ingest_attempts, old.ingest_locked_by, old.ingest_locked_at),
        ('transcode', old.transcode_token, new.transcode_token, new.transcode_status, old.transcode_attempts, old.transcode_locked_by, old.transcode_locked_at),
        ('metadata', old.metadata_token, new.metadata_token, new.metadata_status, old.metadata_attempts, old.metadata_locked_by, old.metadata_locked_at),
        ('assemble', old.assemble_token, new.assemble_token, new.assemble_status, old.assemble_attempts, old.assemble_locked_by, old.assemble_locked_at),
        ('publish', old.publish_token, new.publish_token, new.publish_status, old.publish_attempts, old.publish_locked_by, old.publish_locked_at)
      ) as was (stage, token, token_now, status_now, attempt, worker_id, started_at)
     where was.token is not null
       and was.token is distinct from was.token_now
       and was.status_now in ('pending', 'cancelled')
    on conflict do nothing;
    perform pg_notify('cuelight_video', '') where pg_notification_queue_usage() < 0.9;
  end if;
  if made_by = '' or greatest(old.ingest_status, old.transcode_status, old.metadata_status, old.assemble_status, old.publish_status, new.ingest_status, new.transcode_status, new.metadata_status, new.assemble_status, new.publish_status) >= 'failed'
     or old.ingest_status = 'inprogress' and new.ingest_status = 'pending'
     or old.transcode_status = 'inprogress' and new.transcode_status = 'pending'
     or old.metadata_status = 'inprogress' and new.metadata_status = 'pending'
     or old.assemble_status = 'inprogress' and new.assemble_status = 'pending'
     or old.publish_status = 'inprogress' and new.publish_status = 'pending' then
    perform cuelight_video_tell(old, new, made_by);
  end if;
  if made_by = '' then -- an engine tells the readers itself, now and then
    perform pg_notify('cuelight_video_events', '') where pg_notification_queue_usage() < 0.9;
  end if;
  return null;
end
$$;

-- PostgreSQL reads a trigger's condition anew for every statement, however few
-- rows it changes, so there is one condition, and a short one: something can be
-- claimed, or will not be done, or somebody else than an engine is at work.
-- Otherwise nobody is told: a task goes its way, each stage claimed with what it
-- needs.
drop trigger if exists tasks_changed on tasks;
create trigger tasks_changed after update on tasks
  for each row when (
    new.ingest_status in ('pending', 'failed')
    or new.transcode_status in ('pending', 'failed') and new.ingest_status = 'completed'
    or new.metadata_status in ('pending', 'failed') and new.ingest_status = 'completed'
    or new.assemble_status in ('pending', 'failed') and new.transcode_status = 'completed' and new.metadata_status = 'completed'
    or new.publish_status in ('pending', 'failed') and new.assemble_status = 'completed'
    or greatest(new.ingest_status, new.transcode_status, new.metadata_status, new.assemble_status, new.publish_status) >= 'dead'
    or coalesce(current_setting('cuelight.made_by', true), '') = '')
  execute function cuelight_video_changed();

-- Deleting a task deletes its history.
create or replace function cuelight_video_forget() returns trigger language plpgsql set search_path from current as $$
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
       select from cuelight_uncrashed where seq = 'outbox_id'::regclass and cluster = (pg_control_system()).system_identifier)) then
    raise exception 'there was never an event %', after
      using errcode = 'CL001', hint = 'It is from another database, or from what this one was before. Begin anew with what the tasks are now.';
  end if;
end
$$;

-- How a task as a whole stands.
create or replace function cuelight_video_status(t tasks) returns text language sql stable as $$
  select case
    when 'dead' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'dead'
    when 'cancelled' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'cancelled'
    when t.ingest_status = 'completed' and t.transcode_status = 'completed' and t.metadata_status = 'completed' and t.assemble_status = 'completed' and t.publish_status = 'completed' then 'completed'
    when 'inprogress' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'inprogress'
    when 'failed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'failed'
    when 'completed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status, t.publish_status) then 'inprogress'
    else 'pending'
  end
$$;

-- Do a stage again, and everything after it:
--   select cuelight_video_retry('<task id>', 'ingest');
-- Without a stage: do whatever died, failed or was cancelled. What is running
-- and has to be done again is taken from its worker.
create or replace function cuelight_video_retry(task uuid, from_stage text default null) returns setof tasks
language plpgsql set search_path from current as $$
begin
  if from_stage is not null and from_stage not in ('ingest', 'transcode', 'metadata', 'assemble', 'publish') then
    raise exception 'there is no stage %', quote_literal(from_stage)
      using errcode = 'invalid_parameter_value', hint = 'The stages are ingest, transcode, metadata, assemble, publish.';
  end if;
  return query
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
      from tasks where id = task for no key update
  )
  update tasks t set
    ingest_status    = case when ingest_again then 'pending' else ingest_status end,
    ingest_attempts  = case when ingest_again then 0 else ingest_attempts end,
    ingest_token     = case when ingest_again then null else ingest_token end,
    ingest_locked_at = case when ingest_again then null else ingest_locked_at end,
    ingest_locked_by = case when ingest_again then null else ingest_locked_by end,
    ingest_run_at    = case when ingest_again then null else ingest_run_at end,
    transcode_status    = case when transcode_again then 'pending' else transcode_status end,
    transcode_attempts  = case when transcode_again then 0 else transcode_attempts end,
    transcode_token     = case when transcode_again then null else transcode_token end,
    transcode_locked_at = case when transcode_again then null else transcode_locked_at end,
    transcode_locked_by = case when transcode_again then null else transcode_locked_by end,
    transcode_run_at    = case when transcode_again then null else transcode_run_at end,
    metadata_status    = case when metadata_again then 'pending' else metadata_status end,
    metadata_attempts  = case when metadata_again then 0 else metadata_attempts end,
    metadata_token     = case when metadata_again then null else metadata_token end,
    metadata_locked_at = case when metadata_again then null else metadata_locked_at end,
    metadata_locked_by = case when metadata_again then null else metadata_locked_by end,
    metadata_run_at    = case when metadata_again then null else metadata_run_at end,
    assemble_status    = case when assemble_again then 'pending' else assemble_status end,
    assemble_attempts  = case when assemble_again then 0 else assemble_attempts end,
    assemble_token     = case when assemble_again then null else assemble_token end,
    assemble_locked_at = case when assemble_again then null else assemble_locked_at end,
    assemble_locked_by = case when assemble_again then null else assemble_locked_by end,
    assemble_run_at    = case when assemble_again then null else assemble_run_at end,
    publish_status    = case when publish_again then 'pending' else publish_status end,
    publish_attempts  = case when publish_again then 0 else publish_attempts end,
    publish_token     = case when publish_again then null else publish_token end,
    publish_locked_at = case when publish_again then null else publish_locked_at end,
    publish_locked_by = case when publish_again then null else publish_locked_by end,
    publish_run_at    = case when publish_again then null else publish_run_at end,
    ready_at = now()
   from again
  where t.id = again.id
  returning t.*;
end
$$;

-- Cancel a task: what is not done yet will not be, and what is running is
-- taken from its worker and stopped.
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
    publish_run_at    = null
  where t.id = task
  returning t.*
$$;

insert into cuelight_schema (pipeline, version, shape)
values ('video', 5, 'ingest; transcode needs ingest; metadata needs ingest; assemble needs transcode, metadata; publish needs assemble')
on conflict (pipeline) do nothing;

commit;
