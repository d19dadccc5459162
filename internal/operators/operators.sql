-- Tables of the program cuelight: what its operators set up, and what it sends. Programs that embed package store need
-- none of them.
--
--   cuelight_audit               what operators did
--   cuelight_automatic_captions  videos that ask for captions of what is spoken
--   cuelight_captions            captions and chapters that were attached to videos
--   cuelight_keys                API keys
--   cuelight_leases              who does what only one process at a time should do
--   cuelight_locations           the directories or buckets that have the files of all tasks
--   cuelight_profiles            named settings of videos
--   cuelight_webhooks            receivers of events
--   cuelight_deliveries          one row per event and receiver
--   cuelight_alert_cooldowns     alerts that are not repeated yet
--
-- Load with psql -f after schema.sql; loading it again changes nothing.

begin;

-- Actions of operators, by command line, API and dashboard.
create table if not exists cuelight_audit (
  id     bigint      primary key generated always as identity,
  at     timestamptz not null default clock_timestamp(),
  actor  text        not null,             -- user or API key
  action text        not null,
  target text        not null default '',  -- a task, stage, worker, key or webhook
  detail jsonb       not null default '{}'
);

-- Videos that ask for captions of what is spoken in them, until these are purged.
create table if not exists cuelight_automatic_captions (
  pipeline text        not null,
  task_id  uuid        not null,
  language text        not null,             -- that is spoken; auto: to be detected
  attempts integer     not null default 0,   -- with the running one
  run_at   timestamptz default now(),        -- no attempt begins before; null: done, also where nothing is spoken
  token    uuid,                             -- of the last attempt
  error    text        not null default '',  -- of the last attempt
  primary key (pipeline, task_id)
);

create index if not exists cuelight_automatic_captions_due on cuelight_automatic_captions (pipeline, run_at)
  where run_at is not null;

-- Captions and chapters that were attached to videos, until these are purged.
create table if not exists cuelight_captions (
  id         uuid        primary key default cuelight_id(),
  pipeline   text        not null,
  task_id    uuid        not null,
  chapters   boolean     not null default false,  -- it has chapters instead of captions
  language   text        not null,                -- a BCP 47 tag; chapters may have none
  name       text        not null default '',     -- in players; empty: the language in its own words
  is_default boolean     not null default false,
  forced     boolean     not null default false,
  sdh        boolean     not null default false,
  cues       integer     not null,                -- or chapters
  content    text        not null,                -- WebVTT, with the times of the video
  added_at   timestamptz not null default clock_timestamp(),
  added_by   text        not null default ''      -- user or API key
);

create index if not exists cuelight_captions_task on cuelight_captions (task_id);

alter table cuelight_captions add column if not exists chapters boolean not null default false;  -- tables without chapters

create unique index if not exists cuelight_captions_chapters on cuelight_captions (pipeline, task_id) where chapters;

-- API keys. Only the SHA-256 of a key is stored.
create table if not exists cuelight_keys (
  id          uuid        primary key default cuelight_id(),
  name        text        not null,
  scope       text        not null check (scope in ('read', 'submit', 'work', 'admin')),
  prefix      text        not null unique,  -- its first characters, to look it up
  digest      bytea       not null,
  created_at  timestamptz not null default now(),
  used_at     timestamptz,
  disabled_at timestamptz,                  -- refused until it is enabled
  enabled_at  timestamptz,                  -- last time; refused results count from then
  revoked_at  timestamptz,                  -- refused for ever
  labels      text[]                        -- those that its workers may offer; null: any
);

-- Leases for work that one process at a time should do, such as sending webhooks.
create table if not exists cuelight_leases (
  name   text        primary key,
  holder uuid        not null,  -- a random id of the process
  until  timestamptz not null
);

-- The directories or buckets that have the files of all tasks. A worker with others would not find them.
create table if not exists cuelight_locations (
  pipeline    text        not null,
  kind        text        not null,  -- data or publish
  id          text        not null,  -- content of .cuelight-id
  address     text        not null,  -- as the last worker that started calls it
  host        text        not null,  -- of that worker
  recorded_at timestamptz not null default now(),
  primary key (pipeline, kind)
);

-- Named profiles of videos: settings that submissions take by name.
create table if not exists cuelight_profiles (
  pipeline   text        not null,
  name       text        not null,
  definition jsonb       not null check (jsonb_typeof(definition) = 'object'),
  updated_at timestamptz not null default clock_timestamp(),
  updated_by text        not null default '',  -- user or API key
  primary key (pipeline, name)
);

-- Webhook receivers and their delivery cursor.
create table if not exists cuelight_webhooks (
  id              uuid        primary key default cuelight_id(),
  pipeline        text        not null,
  url             text        not null,
  types           text[]      not null default '{}',      -- of events; empty: all except progress and alerts
  secret          text        not null,                   -- whsec_ and the key in base64
  old_secret      text,                                   -- also signs, until old_until
  old_until       timestamptz,
  cooldown        interval    not null default '300 s',   -- between two alerts of one subject
  created_at      timestamptz not null default now(),
  disabled_at     timestamptz,
  disabled_reason text        not null default '',
  cursor          bigint      not null,                   -- the last event that was read
  format          text        not null default 'cuelight' -- of the bodies: cuelight, slack or discord
);

-- Webhook deliveries: one row per event and webhook.
create table if not exists cuelight_deliveries (
  id          uuid        primary key default cuelight_id(),  -- sent as the header webhook-id
  webhook_id  uuid        not null references cuelight_webhooks on delete cascade,
  event_id    bigint      not null,
  type        text        not null,
  task_id     uuid,
  payload     text        not null,
  created_at  timestamptz not null default now(),
  attempts    integer     not null default 0,
  run_at      timestamptz not null default now(),             -- not sent before
  status      text        not null default 'pending' check (status in ('pending', 'delivered', 'dead', 'suppressed')),
  finished_at timestamptz,
  response    integer,                                        -- the HTTP status; null: no answer
  error       text        not null default ''
);

-- Two processes cannot add the same event twice. An event may also raise an alert.
create unique index if not exists cuelight_deliveries_event on cuelight_deliveries (webhook_id, event_id, type);
create index if not exists cuelight_deliveries_due on cuelight_deliveries (webhook_id, run_at, event_id)
  where status = 'pending';
create index if not exists cuelight_deliveries_order on cuelight_deliveries (webhook_id, task_id, event_id)
  where status = 'pending';
create index if not exists cuelight_deliveries_list on cuelight_deliveries (webhook_id, id);
create index if not exists cuelight_deliveries_dead on cuelight_deliveries (webhook_id, id) where status = 'dead';
create index if not exists cuelight_deliveries_finished on cuelight_deliveries (status, finished_at)
  where status <> 'pending';

-- Alert cooldowns, per webhook and subject.
create table if not exists cuelight_alert_cooldowns (
  webhook_id uuid        not null references cuelight_webhooks on delete cascade,
  subject    text        not null,
  until      timestamptz not null,
  suppressed integer     not null default 0,  -- alerts not sent since the last one
  primary key (webhook_id, subject)
);

-- Processes that send webhooks are notified of new ones, on the channel of their pipeline.
create or replace function cuelight_notify_webhooks() returns trigger language plpgsql as $$
begin
  perform pg_notify('cuelight_' || new.pipeline, '') where pg_notification_queue_usage() < 0.9;
  return null;
end
$$;

drop trigger if exists cuelight_webhooks_notify on cuelight_webhooks;
create trigger cuelight_webhooks_notify after insert or update of disabled_at on cuelight_webhooks
  for each row execute function cuelight_notify_webhooks();

-- Processes that remember keys read them again when one is refused from now on. A key is for all pipelines of the
-- schema, which are known by their functions.
create or replace function cuelight_notify_keys() returns trigger language plpgsql as $$
begin
  perform pg_notify(substring(p.proname from '^(cuelight_.+)_backlog$'), '')
     from pg_proc p
    where p.pronamespace = (select relnamespace from pg_class where oid = tg_relid)
      and p.proname ~ '^cuelight_.+_backlog$' and pg_notification_queue_usage() < 0.9;
  return null;
end
$$;

drop trigger if exists cuelight_keys_notify on cuelight_keys;
create trigger cuelight_keys_notify after update of digest, scope, disabled_at, revoked_at or delete on cuelight_keys
  for each statement execute function cuelight_notify_keys();

commit;
