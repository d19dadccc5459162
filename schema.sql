-- The tables of Cuelight's video pipeline: ingest; transcode needs ingest; metadata needs ingest; assemble needs transcode, metadata; publish needs assemble.
--
-- One row of tasks is one task: what was submitted, and for every stage how
-- far it is. The constraints say which states can be at all; they hold for
-- hand-written SQL as they do for Cuelight. triggers.sql says what happens next.
--
-- Load with psql -f; loading it again changes nothing. Needs PostgreSQL 13.
--
-- Written by `make sql`; change store/ddl/schema.sql.tmpl instead.

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

do $$
begin
  if to_regtype(format('%I.cuelight_status', current_schema())) is null then
    create type cuelight_status as enum
      ('pending',     -- to be done, once what it needs is completed
       'inprogress',  -- claimed by a worker
       'completed',   -- done, for good
       'failed',      -- tried in vain; tried again at run_at
       'dead',        -- tried in vain as often as allowed
       'cancelled');  -- not to be done
    create type cuelight_outcome as enum
      ('completed',   -- the work was done
       'failed',      -- the work returned an error
       'expired',     -- the worker went away
       'released',    -- the worker gave the claim back; not counted as an attempt
       'cancelled');  -- the claim was taken back by somebody
  end if;
end
$$;

-- A UUID of version 7 (RFC 9562): ids sort by the time they were made, down to
-- the microsecond, and cannot be guessed from one another.
create or replace function cuelight_id() returns uuid language plpgsql volatile parallel safe as $$
declare us bigint := extract(epoch from clock_timestamp()) * 1000000;
begin
  return (lpad(to_hex(us / 1000), 12, '0')
          || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0')
          || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid;
end
$$;

-- Which version of these files a pipeline's tables were made by; triggers.sql
-- writes it down when all is there.
create table if not exists cuelight_schema (
  pipeline   text        primary key,
  version    integer     not null,
  shape      text        not null,
  applied_at timestamptz not null default now(),
  forgotten  bigint      not null default 0  -- events up to here were deleted
);

-- One row per process that works on a pipeline. Its beat is the sign of life
-- for all its claims; a claim has no heartbeat of its own.
create table if not exists workers (
  id           uuid        primary key default cuelight_id(),
  pipeline     text        not null,
  host         text        not null,
  pid          integer     not null,
  version      text        not null default '',
  capabilities jsonb       not null default '{}',
  started_at   timestamptz not null default now(),
  beat_at      timestamptz not null default now(),
  lease        interval    not null default '36 s', -- how long it may be silent
  session      bigint,                 -- key of the advisory lock it holds while it is connected
  place        text        not null default '',  -- its boot, process namespace and start
  registered_in text,                  -- the database, which is another one where a dump is restored
  stopped_at   timestamptz,            -- it said good-bye
  lost_at      timestamptz,            -- it was given up
  drain_at     timestamptz,            -- it was told to end its work and stop
  running      jsonb       not null default '[]'  -- what it works on, and how far that is
);

create index if not exists workers_alive on workers (pipeline) where stopped_at is null and lost_at is null;

-- Which server this is: what pg_dump brings to another one says a different number
-- there. Where asking for it is refused, as on some managed servers, the time at
-- which the server was started stands for it: a restart is then taken for a crash,
-- which costs a gap in the ids and nothing else.
create or replace function cuelight_cluster() returns bigint language plpgsql stable as $$
begin
  return (select system_identifier from pg_control_system());
exception when insufficient_privilege or undefined_function then
  return (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint;
end
$$;

-- Which database this is: the server, and the table of workers in it. A dump that is
-- restored, wherever that is, makes another one.
create or replace function cuelight_database_id() returns text language sql stable set search_path from current as $$
  select cuelight_cluster() || '/' || 'workers'::regclass::oid
$$;

-- The secret that makes the locks of the order of events unlike all others. Workers
-- read it; roles that only submit or read events do not.
create table if not exists cuelight_secret (
  one   boolean primary key default true check (one),
  value bytea   not null
);

insert into cuelight_secret (value)
values (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'))
on conflict do nothing;

-- The sequences that neither a crash nor a restored dump has set back. A crash of
-- the server empties the table, as all that is unlogged; on a standby that takes
-- over it is empty, too; and in what pg_dump has brought, the numbers are others.
create unlogged table if not exists cuelight_uncrashed (
  seq     oid    not null,
  cluster bigint not null default cuelight_cluster()
);

-- What is not to be claimed for now: a stage, or all of them where it is empty;
-- on one host, or on all. A worker learns of it with its next beat.
create table if not exists cuelight_pauses (
  pipeline  text        not null,
  stage     text        not null default '',
  host      text        not null default '',
  paused_at timestamptz not null default now(),
  paused_by text        not null default '',
  primary key (pipeline, stage, host)
);

-- Who may use the HTTP API. Of a key only the SHA-256 is kept.
create table if not exists cuelight_keys (
  id         uuid        primary key default cuelight_id(),
  name       text        not null,
  scope      text        not null check (scope in ('read', 'submit', 'admin')),
  prefix     text        not null unique,  -- its beginning, to find it by
  digest     bytea       not null,
  created_at timestamptz not null default now(),
  used_at    timestamptz,
  revoked_at timestamptz
);

-- What people have done, by the command line, the API or the dashboard.
create table if not exists cuelight_audit (
  id       bigint      primary key generated always as identity,
  at       timestamptz not null default clock_timestamp(),
  pipeline text        not null,
  actor    text        not null,             -- who, as far as it is known
  action   text        not null,
  target   text        not null default '',  -- a task, stage, worker, key or webhook
  detail   jsonb       not null default '{}'
);

-- Which process does what only one at a time should do.
create table if not exists cuelight_leases (
  name   text        primary key,
  holder uuid        not null,  -- a number that the process has drawn
  until  timestamptz not null
);

-- Who is told of events by HTTP, and how far that is.
create table if not exists cuelight_webhooks (
  id           uuid        primary key default cuelight_id(),
  pipeline     text        not null,
  url          text        not null,
  types        text[]      not null default '{}',    -- of events; none for all but progress and alerts
  secret       text        not null,                 -- whsec_ and the key in base64
  old_secret   text,                                 -- signs too, until old_until
  old_until    timestamptz,
  cooldown     interval    not null default '300 s', -- between two alerts of one kind
  created_at   timestamptz not null default now(),
  disabled_at  timestamptz,
  disabled_why text        not null default '',
  cursor       bigint      not null                  -- the last event that was looked at
);

-- One row per event and webhook: what is to be delivered, was, or could not be.
create table if not exists cuelight_deliveries (
  id          uuid        primary key default cuelight_id(),  -- the header webhook-id
  webhook_id  uuid        not null references cuelight_webhooks (id) on delete cascade,
  event_id    bigint      not null,
  type        text        not null,
  task_id     uuid,
  payload     text        not null,
  created_at  timestamptz not null default now(),
  attempts    integer     not null default 0,
  run_at      timestamptz not null default now(),  -- not before
  status      text        not null default 'pending' check (status in ('pending', 'delivered', 'dead', 'suppressed')),
  finished_at timestamptz,
  response    integer,                             -- the HTTP status, if there was one
  error       text        not null default ''
);

-- An event is written once, whoever thinks it is their turn; it may also be an alert.
create unique index if not exists cuelight_deliveries_event on cuelight_deliveries (webhook_id, event_id, type);
create index if not exists cuelight_deliveries_due on cuelight_deliveries (webhook_id, run_at, event_id) where status = 'pending';
create index if not exists cuelight_deliveries_order on cuelight_deliveries (webhook_id, task_id, event_id) where status = 'pending';
create index if not exists cuelight_deliveries_list on cuelight_deliveries (webhook_id, id);
create index if not exists cuelight_deliveries_dead on cuelight_deliveries (webhook_id, id) where status = 'dead';
create index if not exists cuelight_deliveries_finished on cuelight_deliveries (status, finished_at) where status <> 'pending';

-- Until when alerts of one kind are not repeated to a webhook.
create table if not exists cuelight_quiet (
  webhook_id uuid        not null references cuelight_webhooks (id) on delete cascade,
  subject    text        not null,
  until      timestamptz not null,
  suppressed integer     not null default 0,  -- so many since the last that was sent
  primary key (webhook_id, subject)
);

create table if not exists tasks (
  id            uuid        primary key default cuelight_id(),
  created_at    timestamptz not null default now(),
  priority      smallint    not null default 0,    -- higher is sooner
  source        text        not null,
  params        jsonb       not null default '{}',
  request_id    text,                              -- a second submit with it, by the same submitter, finds the first
  user_id       text,
  submitted_by  text,                              -- the API key; null: whoever has the database or the admin secret
  traceparent   text,                              -- W3C Trace Context of whoever submitted it
  ready_at      timestamptz,                       -- it has waited since it was due, or done again, then; null: since created_at, or it is scheduled
  scheduled_at  timestamptz,                       -- cancelled while it waited for this time, which a retry keeps
  overridden_by uuid        references tasks (id) on delete set null deferrable,

  ingest_status    cuelight_status not null default 'pending',
  ingest_attempts  integer         not null default 0,
  ingest_token     uuid,        -- names the claim; every write of its worker must show it
  ingest_locked_at timestamptz,
  ingest_locked_by uuid,        -- workers.id
  ingest_run_at    timestamptz, -- not before; null once that is past

  transcode_status    cuelight_status not null default 'pending',
  transcode_attempts  integer         not null default 0,
  transcode_token     uuid,        -- names the claim; every write of its worker must show it
  transcode_locked_at timestamptz,
  transcode_locked_by uuid,        -- workers.id
  transcode_run_at    timestamptz, -- not before; null once that is past

  metadata_status    cuelight_status not null default 'pending',
  metadata_attempts  integer         not null default 0,
  metadata_token     uuid,        -- names the claim; every write of its worker must show it
  metadata_locked_at timestamptz,
  metadata_locked_by uuid,        -- workers.id
  metadata_run_at    timestamptz, -- not before; null once that is past

  assemble_status    cuelight_status not null default 'pending',
  assemble_attempts  integer         not null default 0,
  assemble_token     uuid,        -- names the claim; every write of its worker must show it
  assemble_locked_at timestamptz,
  assemble_locked_by uuid,        -- workers.id
  assemble_run_at    timestamptz, -- not before; null once that is past

  publish_status    cuelight_status not null default 'pending',
  publish_attempts  integer         not null default 0,
  publish_token     uuid,        -- names the claim; every write of its worker must show it
  publish_locked_at timestamptz,
  publish_locked_by uuid,        -- workers.id
  publish_run_at    timestamptz, -- not before; null once that is past

  constraint tasks_source_given check (source <> ''),
  constraint tasks_params_object check (jsonb_typeof(params) = 'object'),
  constraint tasks_created_when check (isfinite(created_at)),

  -- transcode starts once ingest is completed.
  constraint tasks_transcode_needs check
    (transcode_status in ('pending', 'cancelled') or ingest_status = 'completed'),

  -- metadata starts once ingest is completed.
  constraint tasks_metadata_needs check
    (metadata_status in ('pending', 'cancelled') or ingest_status = 'completed'),

  -- assemble starts once transcode and metadata are completed.
  constraint tasks_assemble_needs check
    (assemble_status in ('pending', 'cancelled') or transcode_status = 'completed' and metadata_status = 'completed'),

  -- publish starts once assemble is completed.
  constraint tasks_publish_needs check
    (publish_status in ('pending', 'cancelled') or assemble_status = 'completed'),

  -- Claimed means: a token, a time and a worker; otherwise none of them.
  constraint tasks_ingest_claim check
    (num_nonnulls(ingest_token, ingest_locked_at, ingest_locked_by) = case ingest_status when 'inprogress' then 3 else 0 end),
  constraint tasks_transcode_claim check
    (num_nonnulls(transcode_token, transcode_locked_at, transcode_locked_by) = case transcode_status when 'inprogress' then 3 else 0 end),
  constraint tasks_metadata_claim check
    (num_nonnulls(metadata_token, metadata_locked_at, metadata_locked_by) = case metadata_status when 'inprogress' then 3 else 0 end),
  constraint tasks_assemble_claim check
    (num_nonnulls(assemble_token, assemble_locked_at, assemble_locked_by) = case assemble_status when 'inprogress' then 3 else 0 end),
  constraint tasks_publish_claim check
    (num_nonnulls(publish_token, publish_locked_at, publish_locked_by) = case publish_status when 'inprogress' then 3 else 0 end),

  -- Only what is still to be done can wait, and for a time that will come.
  constraint tasks_ingest_waits check
    (ingest_run_at is null or ingest_status in ('pending', 'failed') and isfinite(ingest_run_at)),
  constraint tasks_transcode_waits check
    (transcode_run_at is null or transcode_status in ('pending', 'failed') and isfinite(transcode_run_at)),
  constraint tasks_metadata_waits check
    (metadata_run_at is null or metadata_status in ('pending', 'failed') and isfinite(metadata_run_at)),
  constraint tasks_assemble_waits check
    (assemble_run_at is null or assemble_status in ('pending', 'failed') and isfinite(assemble_run_at)),
  constraint tasks_publish_waits check
    (publish_run_at is null or publish_status in ('pending', 'failed') and isfinite(publish_run_at)),

  constraint tasks_attempts_counted check
    (least(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts, publish_attempts) >= 0),

  -- A task that was replaced is never worked on again.
  constraint tasks_overridden_rests check
    (overridden_by is null or overridden_by <> id and
     not array[ingest_status, transcode_status, metadata_status, assemble_status, publish_status] && '{pending,inprogress,failed}')
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

create unique index if not exists tasks_request on tasks (request_id, (coalesce(submitted_by, ''))) where request_id is not null;
create index if not exists tasks_overridden on tasks (overridden_by) where overridden_by is not null;

-- What can be claimed now, per stage, in the order it is claimed. A finished
-- task is in none of these, so claiming costs the same however many there are.
create index if not exists tasks_ingest_ready on tasks (priority desc, id)
  where ingest_status in ('pending', 'failed') and ingest_run_at is null;
create index if not exists tasks_transcode_ready on tasks (priority desc, id)
  where transcode_status in ('pending', 'failed') and ingest_status = 'completed' and transcode_run_at is null;
create index if not exists tasks_metadata_ready on tasks (priority desc, id)
  where metadata_status in ('pending', 'failed') and ingest_status = 'completed' and metadata_run_at is null;
create index if not exists tasks_assemble_ready on tasks (priority desc, id)
  where assemble_status in ('pending', 'failed') and transcode_status = 'completed' and metadata_status = 'completed' and assemble_run_at is null;
create index if not exists tasks_publish_ready on tasks (priority desc, id)
  where publish_status in ('pending', 'failed') and assemble_status = 'completed' and publish_run_at is null;

-- What waits for a time.
create index if not exists tasks_ingest_waiting on tasks (ingest_run_at)
  where ingest_run_at is not null;
create index if not exists tasks_transcode_waiting on tasks (transcode_run_at)
  where transcode_run_at is not null;
create index if not exists tasks_metadata_waiting on tasks (metadata_run_at)
  where metadata_run_at is not null;
create index if not exists tasks_assemble_waiting on tasks (assemble_run_at)
  where assemble_run_at is not null;
create index if not exists tasks_publish_waiting on tasks (publish_run_at)
  where publish_run_at is not null;

-- What is being worked on, and what died.
create index if not exists tasks_held on tasks (id)
  where ingest_status = 'inprogress' or transcode_status = 'inprogress' or metadata_status = 'inprogress' or assemble_status = 'inprogress' or publish_status = 'inprogress';
create index if not exists tasks_dead on tasks (id) include (overridden_by)
  where ingest_status = 'dead' or transcode_status = 'dead' or metadata_status = 'dead' or assemble_status = 'dead' or publish_status = 'dead';

-- For lists and counts by status: whether it waits for a time, and what has become of
-- it. A task that goes on as it should is not in it before all is done, so it costs
-- each task one entry.
create index if not exists tasks_by_status on tasks (
  (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts, publish_attempts) = 0 and ready_at is null then 1 else 2 end),
  greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status), id)
  where (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null);

-- For the tasks of one user.
create index if not exists tasks_user on tasks (user_id, id) where user_id is not null;

-- The history: one row per finished attempt, written in the statement that
-- changes the task. A stage's result is that of its latest completed attempt.
create table if not exists attempts (
  task_id     uuid             not null,
  token       uuid             not null,
  stage       text             not null,
  attempt     integer          not null,
  worker_id   uuid             not null, -- workers.id
  started_at  timestamptz      not null,
  finished_at timestamptz      not null default clock_timestamp(),
  outcome     cuelight_outcome not null,
  retry_at    timestamptz,               -- when a failed attempt is followed by the next
  error_class text,
  error       text,
  result      jsonb,
  primary key (task_id, token)
);

-- For what happened lately.
create index if not exists attempts_finished on attempts using brin (finished_at);

-- The history for people: who did what, where and when.
create or replace view history as
  select a.task_id, a.stage, a.attempt, a.outcome, a.started_at, a.finished_at,
         w.host, w.pid, w.version, a.retry_at, a.error_class, a.error, a.result, a.worker_id, a.token
    from attempts a
    left join workers w on w.id = a.worker_id;

-- The next place in the order of an outbox, for a row of this transaction. Places
-- are drawn before the transaction commits, so one that takes its time comes in
-- behind later ones. It says so by a lock, whose key tells how far the order went
-- when it drew its first: what lies up to there is not its concern.
--
-- After a crash, places that were drawn in transactions which did not wait for the
-- disk would be drawn again, and a reader that has seen them would miss what is
-- there now. So the first transaction after a crash, or in what was restored from a
-- dump, leaves a good many out.
--
-- Anybody may take advisory locks, so the other half of the key proves that it was
-- made here: it is computed from the transaction's id and a secret. Somebody who
-- copies the key holds it in another transaction, where it says nothing; and nobody
-- can be in the way, as nobody knows the key before. The secret never changes, so a
-- plan may contain it: it is read once per session.
create or replace function cuelight_order_secret() returns bytea language sql immutable set search_path from current as $$
  select value from cuelight_secret
$$;

create or replace function cuelight_order_key(seq regclass, transaction bigint) returns integer language sql immutable as $$
  select hashtext(encode(sha256(cuelight_order_secret() || int8send((seq::oid::bigint << 32) | (transaction & 4294967295))), 'hex'))
$$;

-- This is what a session does that has not drawn one yet; none outlives a crash.
create or replace function cuelight_first_place(seq regclass) returns bigint language plpgsql
set search_path from current as $$
begin
  perform pg_advisory_xact_lock_shared((cuelight_order_key(seq, pg_current_xact_id()::text::bigint)::bigint << 32)
                                       | (coalesce(pg_sequence_last_value(seq), 0) & 4294967295));
  perform set_config('cuelight.drawn_' || seq::oid, pg_current_xact_id()::text, true);
  if not exists (select from cuelight_uncrashed u where u.seq = $1 and u.cluster = cuelight_cluster()) then
    -- One session at a time, else one sets back what another has just set. The lock
    -- ends with the block that is undone; what is done to a sequence never is.
    begin
      perform from cuelight_secret for update;
      perform setval(seq, nextval(seq) + 1048576);
      raise exception using errcode = 'CL002';
    exception when sqlstate 'CL002' then
      null;
    end;
    insert into cuelight_uncrashed values (seq);
  end if;
  perform set_config('cuelight.intact_' || seq::oid, 'yes', false);
  return nextval(seq);
end
$$;

-- The same for any session, written so that PostgreSQL puts it in place of the call:
-- it costs a tenth of the above.
create or replace function cuelight_place(seq regclass) returns bigint language sql volatile as $$
  select case
    when coalesce(current_setting('cuelight.drawn_' || seq::oid, true), '') = pg_current_xact_id()::text
      or coalesce(current_setting('cuelight.intact_' || seq::oid, true), '') = 'yes'
     and pg_try_advisory_xact_lock_shared((cuelight_order_key(seq, pg_current_xact_id()::text::bigint)::bigint << 32)
                                          | (coalesce(pg_sequence_last_value(seq), 0) & 4294967295))
     and set_config('cuelight.drawn_' || seq::oid, pg_current_xact_id()::text, true) <> ''
    then nextval(seq)
    else cuelight_first_place(seq)
  end
$$;

-- The transactions that have drawn a place in the order of an outbox and are still
-- open, and how far the order was before. The lock has the lower half of that place,
-- and the place is the one nearest to the last one drawn. Where it is beyond that, it
-- was drawn since we looked.
create or replace function cuelight_open_places(seq regclass) returns table (pid integer, place bigint)
language plpgsql security definer set search_path from current as $$
declare drawn constant bigint := coalesce(pg_sequence_last_value(seq), 0);
begin
  return query
  with locks as materialized (select * from pg_locks l where l.locktype in ('advisory', 'transactionid') and l.granted)
  select l.pid, drawn - ((drawn - l.objid::bigint) & 4294967295)
    from locks l
    join locks x on x.virtualtransaction = l.virtualtransaction and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock'
   where l.locktype = 'advisory' and l.objsubid = 1 and l.mode = 'ShareLock'
     and l.database = (select oid from pg_database where datname = current_database())
     and l.classid::bigint = (cuelight_order_key(seq, x.transactionid::text::bigint)::bigint & 4294967295)
     and ((drawn - l.objid::bigint) & 4294967295) < 2147483648;
end
$$;

-- How far the order of an outbox is complete: no transaction will come in at this
-- place or before it.
create or replace function cuelight_complete(seq regclass) returns bigint language plpgsql as $$
declare drawn constant bigint := coalesce(pg_sequence_last_value(seq), 0);
begin
  if current_setting('transaction_isolation') not like 'read %' then
    raise exception 'events cannot be read in a transaction that is %', current_setting('transaction_isolation')
      using errcode = 'active_sql_transaction', hint = 'What is complete now was not all there when it began. Use read committed.';
  end if;
  if pg_is_in_recovery() then
    raise exception 'events cannot be read on a standby'
      using errcode = 'object_not_in_prerequisite_state', hint = 'It does not know which transactions are open. Read them where they are written.';
  end if;
  -- Places come after drawn was read: what is open now was open then, or lies beyond.
  return least(drawn, (select min(place) from cuelight_open_places(seq)));
end
$$;

-- The outbox: what happened, written in the transaction in which it did. A row is
-- one event; or what one statement did to many tasks, which costs less: those that
-- were submitted, deleted, or claimed for a stage; or, of type turn, in which stages
-- were completed and others begun. Bit 0 of a set is the first stage; bit 31 of
-- completed says that now all are. The view below tells them one by one.
do $$
begin
  if to_regclass(format('%I.%I', current_schema(), 'outbox_id')) is null then
    create sequence outbox_id;
    insert into cuelight_uncrashed values ('outbox_id'::regclass);
  end if;
end
$$;

create table if not exists outbox (
  id        bigint      primary key default cuelight_place('outbox_id'),
  at        timestamptz not null default clock_timestamp(),
  type      text        not null,
  worker_id uuid,
  task_id   uuid,
  stage     text,
  attempt   integer,
  token     uuid,       -- of the attempt, which says more
  data      jsonb,
  tasks     uuid[],
  completed integer[],  -- by task: a set of stages
  begun     integer[],  -- by task: a set of stages
  attempts  integer[]   -- by task; of a turn, by task and stage
) with (toast_tuple_target = 8160);

-- What happened, event by event, in the order of the ids. To read on from the last
-- id that was seen, use cuelight_video_events(): here a transaction that takes its
-- time comes in behind later ones.
create or replace view events as
  select o.id << 16 | e.n as id, o.at, e.type, e.task_id, e.stage, e.attempt, o.worker_id, e.data, o.id as outbox_id
    from outbox o
   cross join lateral (
         select 0 as n, o.type, o.task_id, o.stage, o.attempt,
                case when a.token is null then o.data
                     else coalesce(o.data, '{}') || jsonb_strip_nulls(jsonb_build_object('error_class', a.error_class, 'error', a.error))
                end as data
           from (select) as one
           left join attempts a on a.task_id = o.task_id and a.token = o.token
          where o.tasks is null and o.type <> 'progress'
          union all
         select n::int - 1, o.type, (r->>'task')::uuid, r->>'stage', (r->>'attempt')::int, r - '{task,stage,attempt,token}'::text[]
           from jsonb_array_elements(case when o.type = 'progress' then o.data end) with ordinality as running (r, n)
          union all
         select n::int - 1, o.type, id, o.stage, o.attempts[n], o.data
           from unnest(o.tasks) with ordinality as each (id, n)
          where o.type <> 'turn'
          union all
         select (n::int - 1) * 64 + k.place, k.type, each.id, k.stage, o.attempts[n][k.bit + 1], null
           from unnest(o.tasks, o.completed, o.begun) with ordinality as each (id, completed, begun, n)
          cross join lateral (values
                (0, 'stage_completed', 0, 'ingest', each.completed >> 0 & 1),
                (1, 'stage_completed', 1, 'transcode', each.completed >> 1 & 1),
                (2, 'stage_completed', 2, 'metadata', each.completed >> 2 & 1),
                (3, 'stage_completed', 3, 'assemble', each.completed >> 3 & 1),
                (4, 'stage_completed', 4, 'publish', each.completed >> 4 & 1),
                (31, 'done', null, null, each.completed >> 31 & 1),
                (32 + 0, 'started', 0, 'ingest', each.begun >> 0 & 1),
                (32 + 1, 'started', 1, 'transcode', each.begun >> 1 & 1),
                (32 + 2, 'started', 2, 'metadata', each.begun >> 2 & 1),
                (32 + 3, 'started', 3, 'assemble', each.begun >> 3 & 1),
                (32 + 4, 'started', 4, 'publish', each.begun >> 4 & 1)) as k (place, type, bit, stage, happened)
          where o.type = 'turn' and k.happened = 1) as e;

commit;
