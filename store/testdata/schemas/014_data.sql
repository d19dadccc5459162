-- Rows as a program of version 14 leaves them: a task of every status, a divided one, history, a worker,
-- a pause, a key, a webhook and an audit entry, and a deleted task.
insert into workers (id, pipeline, name, host, pid)
values ('00000000-0000-7000-8000-0000000000aa', 'video', 'media1', 'media1', 1);

insert into tasks (id, source, request_id, user_id)
select ('00000000-0000-7000-8000-00000000000' || n)::uuid, '/videos/' || n || '.mp4', 'request-' || n, 'anna'
  from generate_series(1, 7) as n;

update tasks set ingest_status = 'completed', ingest_attempts = 1
 where id >= '00000000-0000-7000-8000-000000000002';
update tasks set transcode_status = 'completed', metadata_status = 'completed', assemble_status = 'completed',
                 publish_status = 'completed', transcode_attempts = 1
 where id = '00000000-0000-7000-8000-000000000002';
update tasks set transcode_status = 'inprogress', transcode_attempts = 1, transcode_token = gen_random_uuid(),
                 transcode_locked_at = now(), transcode_locked_by = '00000000-0000-7000-8000-0000000000aa'
 where id = '00000000-0000-7000-8000-000000000003';
update tasks set transcode_status = 'divided', transcode_parts = 2, transcode_open_parts = 2
 where id = '00000000-0000-7000-8000-000000000004';
insert into parts (task_id, stage, part, priority, turn)
values ('00000000-0000-7000-8000-000000000004', 'transcode', 1, 0, 1),
       ('00000000-0000-7000-8000-000000000004', 'transcode', 2, 0, 2);
update tasks set metadata_status = 'dead', metadata_attempts = 5
 where id = '00000000-0000-7000-8000-000000000005';
update tasks set transcode_status = 'failed', transcode_run_at = now() + interval '1 hour', transcode_attempts = 1
 where id = '00000000-0000-7000-8000-000000000006';
select cuelight_video_cancel('00000000-0000-7000-8000-000000000007');

insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
values ('00000000-0000-7000-8000-000000000002', gen_random_uuid(), 'publish', 1,
        '00000000-0000-7000-8000-0000000000aa', now(), 'completed', '{"files": 3}');
insert into cuelight_pauses (pipeline, stage) values ('video', 'metadata');
insert into cuelight_keys (name, scope, prefix, digest) values ('player', 'read', 'cl_12345678', '\x00');
insert into cuelight_audit (pipeline, actor, action) values ('video', 'anna@media1', 'pause');
insert into cuelight_webhooks (pipeline, url, secret, cursor) values ('video', 'https://example.org/', 'whsec_AA==', 0);
insert into tasks (id, source, request_id) values ('00000000-0000-7000-8000-000000000008', '/videos/8.mp4', 'request-8');
select from cuelight_video_delete('00000000-0000-7000-8000-000000000008', deleted_by => 'anna');
