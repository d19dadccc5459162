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
  applied_at timestamptz not null default now()
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
  stopped_at   timestamptz,            -- it said good-bye
  lost_at      timestamptz,            -- it was given up
  running      jsonb       not null default '[]'  -- what it works on, and how far that is
);

create index if not exists workers_alive on workers (pipeline) where stopped_at is null and lost_at is null;

create table if not exists tasks (
  id            uuid        primary key default cuelight_id(),
  created_at    timestamptz not null default now(),
  priority      smallint    not null default 0,    -- higher is sooner
  source        text        not null,
  params        jsonb       not null default '{}',
  request_id    text,                              -- a second submit with it finds the first
  user_id       text,
  overridden_by uuid        references tasks (id) deferrable,

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

create unique index if not exists tasks_request on tasks (request_id) where request_id is not null;
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
create index if not exists tasks_dead on tasks (id)
  where ingest_status = 'dead' or transcode_status = 'dead' or metadata_status = 'dead' or assemble_status = 'dead' or publish_status = 'dead';

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

-- The history for people: who did what, where and when.
create or replace view history as
  select a.task_id, a.stage, a.attempt, a.outcome, a.started_at, a.finished_at,
         w.host, w.pid, w.version, a.retry_at, a.error_class, a.error, a.result, a.worker_id, a.token
    from attempts a
    left join workers w on w.id = a.worker_id;

commit;
