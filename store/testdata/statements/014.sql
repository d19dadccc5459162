-- The statements that programs of version 14 send for the pipeline video, those of one stage for its first: store/engine/video.sql of
-- that version, and those of other packages. Never changed.

/* settings of an exchange */
select set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('statement_timeout', '25s', true),
       set_config('cuelight.origin', $2, true),
       set_config('lock_timeout', $4, true),
          set_config('application_name', coalesce('cuelight ' || $3::uuid, current_setting('application_name')), true),
          case when current_setting('server_version_num')::integer >= 170000
               then set_config('transaction_timeout', '30s', true) end,
       case when $1 then set_config('synchronous_commit', 'off', true) end;

/* set origin */
select set_config('cuelight.origin', $1, true);

/* complete ingest of one task */
with me as materialized (
  select exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null) as alive
), locked as materialized (
  select ctid as row_ctid, id, priority, placement,
         ingest_status,
         transcode_status,
         metadata_status,
         transcode_run_at,
         metadata_run_at,
         ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by
    from tasks
   where id = $2::uuid
     for no key update skip locked
), matched as (
  select locked.*,
         coalesce(ingest_token = $3::uuid, false) as ingest_done
    from locked
), unblocked as (
  select matched.*,
         alive and transcode_status in ('pending', 'failed') and transcode_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, '', $1, now()) <= 0, false)) as transcode_ready,
         alive and metadata_status in ('pending', 'failed') and metadata_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'metadata', $1, now()) <= 0, false)) as metadata_ready
    from me
   cross join matched
   where ingest_done
), ranked as (
  select unblocked.*
    from unblocked
), step as materialized (
  select row_ctid,
         ingest_done,
         transcode_ready,
         transcode_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.transcode_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.transcode_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, '', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as transcode_continues,
         metadata_ready,
         metadata_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.metadata_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.metadata_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'metadata', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as metadata_continues
    from ranked
), updated as (
  update tasks t set
         ingest_status    = case when ingest_done then 'completed' else ingest_status end,
         ingest_token     = case when ingest_done then null else ingest_token end,
         ingest_locked_at = case when ingest_done then null else ingest_locked_at end,
         ingest_locked_by = case when ingest_done then null else ingest_locked_by end,
         transcode_status    = case when transcode_continues then 'inprogress' else transcode_status end,
         transcode_attempts  = transcode_attempts + transcode_continues::int,
         transcode_token     = case when transcode_continues then gen_random_uuid() else transcode_token end,
         transcode_locked_at = case when transcode_continues then now() else transcode_locked_at end,
         transcode_locked_by = case when transcode_continues then $1 else transcode_locked_by end,
         metadata_status    = case when metadata_continues then 'inprogress' else metadata_status end,
         metadata_attempts  = metadata_attempts + metadata_continues::int,
         metadata_token     = case when metadata_continues then gen_random_uuid() else metadata_token end,
         metadata_locked_at = case when metadata_continues then now() else metadata_locked_at end,
         metadata_locked_by = case when metadata_continues then $1 else metadata_locked_by end
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0
           + ingest_done::int * 1 as done,
         0
           + transcode_continues::int * 2
           + metadata_continues::int * 4 as started,
         0
           + (transcode_ready and not transcode_continues)::int * 2
           + (metadata_ready and not metadata_continues)::int * 4 as left_ready,
         t.priority,
         case when transcode_continues
                or metadata_continues
                or false
              then t.source else '' end,
         case when transcode_continues
                or metadata_continues
                or false
              then t.params end,
         coalesce(case when transcode_continues
                or metadata_continues
                or false
                       then t.user_id end, ''),
         coalesce(case when transcode_continues
                or metadata_continues
                or false
                       then t.traceparent end, ''),
         0 as task_done,
         array[t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts] as attempts,
         0
           + (t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 2
           + (t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 4 as to_notify,
         case when transcode_continues then t.transcode_token end,
         case when metadata_continues then t.metadata_token end
), recorded as (
  insert into outbox (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array[id], array[done | task_done], array[started], array[attempts] from updated
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage
              when 0 then 'ingest' end,
         case r.stage
              when 0 then locked.ingest_attempts end,
         case r.stage
              when 0 then locked.ingest_locked_by end,
         case r.stage
              when 0 then locked.ingest_locked_at end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    join (values (0, $3::uuid, $4::text)) as r (stage, token, result)
      on r.token = case r.stage
                        when 0 then locked.ingest_token end
), notified as materialized (
  select count(pg_notify(channel, ''))
    from updated
    join (values ('cuelight_video_transcode', 2),
                 ('cuelight_video_metadata', 4)) as stage (channel, bit)
      on to_notify & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select updated.* from updated cross join notified;

/* complete ingest */
with me as materialized (
  select exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null) as alive
), locked as materialized (
  select ctid as row_ctid, id, priority, placement,
         ingest_status,
         transcode_status,
         metadata_status,
         transcode_run_at,
         metadata_run_at,
         ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by
    from tasks
   where id = any($2::uuid[])
     for no key update skip locked
), matched as (
  select locked.*,
         coalesce(ingest_token = ingest_reported, false) as ingest_done
    from locked
    join unnest($2::uuid[], $3::uuid[])
         as r (task, ingest_reported)
      on r.task = locked.id
), unblocked as (
  select matched.*,
         alive and transcode_status in ('pending', 'failed') and transcode_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, '', $1, now()) <= 0, false)) as transcode_ready,
         alive and metadata_status in ('pending', 'failed') and metadata_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'metadata', $1, now()) <= 0, false)) as metadata_ready
    from me
   cross join matched
   where ingest_done
), ranked as (
  select unblocked.*
    from unblocked
), step as materialized (
  select row_ctid,
         ingest_done,
         transcode_ready,
         transcode_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.transcode_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.transcode_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, '', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as transcode_continues,
         metadata_ready,
         metadata_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.metadata_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.metadata_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'metadata', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as metadata_continues
    from ranked
), updated as (
  update tasks t set
         ingest_status    = case when ingest_done then 'completed' else ingest_status end,
         ingest_token     = case when ingest_done then null else ingest_token end,
         ingest_locked_at = case when ingest_done then null else ingest_locked_at end,
         ingest_locked_by = case when ingest_done then null else ingest_locked_by end,
         transcode_status    = case when transcode_continues then 'inprogress' else transcode_status end,
         transcode_attempts  = transcode_attempts + transcode_continues::int,
         transcode_token     = case when transcode_continues then gen_random_uuid() else transcode_token end,
         transcode_locked_at = case when transcode_continues then now() else transcode_locked_at end,
         transcode_locked_by = case when transcode_continues then $1 else transcode_locked_by end,
         metadata_status    = case when metadata_continues then 'inprogress' else metadata_status end,
         metadata_attempts  = metadata_attempts + metadata_continues::int,
         metadata_token     = case when metadata_continues then gen_random_uuid() else metadata_token end,
         metadata_locked_at = case when metadata_continues then now() else metadata_locked_at end,
         metadata_locked_by = case when metadata_continues then $1 else metadata_locked_by end
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0
           + ingest_done::int * 1 as done,
         0
           + transcode_continues::int * 2
           + metadata_continues::int * 4 as started,
         0
           + (transcode_ready and not transcode_continues)::int * 2
           + (metadata_ready and not metadata_continues)::int * 4 as left_ready,
         t.priority,
         case when transcode_continues
                or metadata_continues
                or false
              then t.source else '' end,
         case when transcode_continues
                or metadata_continues
                or false
              then t.params end,
         coalesce(case when transcode_continues
                or metadata_continues
                or false
                       then t.user_id end, ''),
         coalesce(case when transcode_continues
                or metadata_continues
                or false
                       then t.traceparent end, ''),
         0 as task_done,
         array[t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts] as attempts,
         0
           + (t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 2
           + (t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 4 as to_notify,
         case when transcode_continues then t.transcode_token end,
         case when metadata_continues then t.metadata_token end
), recorded as (
  insert into outbox (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array_agg(id), array_agg(done | task_done), array_agg(started), array_agg(attempts)
    from updated having count(*) > 0
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage
              when 0 then 'ingest' end,
         case r.stage
              when 0 then locked.ingest_attempts end,
         case r.stage
              when 0 then locked.ingest_locked_by end,
         case r.stage
              when 0 then locked.ingest_locked_at end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    join unnest($4::uuid[], $5::int4[],
                $6::uuid[], $7::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token = case r.stage
                        when 0 then locked.ingest_token end
), notified as materialized (
  select count(pg_notify(channel, ''))
    from (select bit_or(to_notify) as to_notify from updated) as all_tasks
    join (values ('cuelight_video_transcode', 2),
                 ('cuelight_video_metadata', 4)) as stage (channel, bit)
      on to_notify & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select updated.* from updated cross join notified;

/* complete ingest, ranked */
with me as materialized (
  select exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null) as alive
), locked as materialized (
  select ctid as row_ctid, id, priority, placement,
         ingest_status,
         transcode_status,
         metadata_status,
         transcode_run_at,
         metadata_run_at,
         ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by
    from tasks
   where id = any($2::uuid[])
     for no key update skip locked
), matched as (
  select locked.*,
         coalesce(ingest_token = ingest_reported, false) as ingest_done
    from locked
    join unnest($2::uuid[], $3::uuid[])
         as r (task, ingest_reported)
      on r.task = locked.id
), unblocked as (
  select matched.*,
         alive and transcode_status in ('pending', 'failed') and transcode_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, '', $1, now()) <= 0, false)) as transcode_ready,
         alive and metadata_status in ('pending', 'failed') and metadata_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'metadata', $1, now()) <= 0, false)) as metadata_ready
    from me
   cross join matched
   where ingest_done
), ranked as (
  select unblocked.*,
         count(*) filter (where transcode_ready) over by_priority as transcode_rank,
         count(*) filter (where metadata_ready) over by_priority as metadata_rank
    from unblocked
  window by_priority as (order by priority desc, id rows unbounded preceding)
), step as materialized (
  select row_ctid,
         ingest_done,
         transcode_ready,
         transcode_ready and transcode_rank <= case when
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.transcode_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.transcode_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, '', $1, null) <= 0, false))
               and ($10::uuid[] is null or waiting.id = any($10))
             order by waiting.priority desc, waiting.id limit 1), true)
           then ($8::int4[])[2]
           when ($9::bool[])[2]
           then ($8::int4[])[2]
                - (select count(*) from (select from tasks waiting
             where waiting.transcode_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.transcode_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, '', $1, null) <= 0, false))
               and ($10::uuid[] is null or waiting.id = any($10))
             order by waiting.priority desc, waiting.id limit ($8::int4[])[2]) as before)
           else 0 end as transcode_continues,
         metadata_ready,
         metadata_ready and metadata_rank <= case when
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.metadata_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.metadata_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'metadata', $1, null) <= 0, false))
               and ($10::uuid[] is null or waiting.id = any($10))
             order by waiting.priority desc, waiting.id limit 1), true)
           then ($8::int4[])[3]
           when ($9::bool[])[3]
           then ($8::int4[])[3]
                - (select count(*) from (select from tasks waiting
             where waiting.metadata_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.metadata_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'metadata', $1, null) <= 0, false))
               and ($10::uuid[] is null or waiting.id = any($10))
             order by waiting.priority desc, waiting.id limit ($8::int4[])[3]) as before)
           else 0 end as metadata_continues
    from ranked
), updated as (
  update tasks t set
         ingest_status    = case when ingest_done then 'completed' else ingest_status end,
         ingest_token     = case when ingest_done then null else ingest_token end,
         ingest_locked_at = case when ingest_done then null else ingest_locked_at end,
         ingest_locked_by = case when ingest_done then null else ingest_locked_by end,
         transcode_status    = case when transcode_continues then 'inprogress' else transcode_status end,
         transcode_attempts  = transcode_attempts + transcode_continues::int,
         transcode_token     = case when transcode_continues then gen_random_uuid() else transcode_token end,
         transcode_locked_at = case when transcode_continues then now() else transcode_locked_at end,
         transcode_locked_by = case when transcode_continues then $1 else transcode_locked_by end,
         metadata_status    = case when metadata_continues then 'inprogress' else metadata_status end,
         metadata_attempts  = metadata_attempts + metadata_continues::int,
         metadata_token     = case when metadata_continues then gen_random_uuid() else metadata_token end,
         metadata_locked_at = case when metadata_continues then now() else metadata_locked_at end,
         metadata_locked_by = case when metadata_continues then $1 else metadata_locked_by end
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0
           + ingest_done::int * 1 as done,
         0
           + transcode_continues::int * 2
           + metadata_continues::int * 4 as started,
         0
           + (transcode_ready and not transcode_continues)::int * 2
           + (metadata_ready and not metadata_continues)::int * 4 as left_ready,
         t.priority,
         case when transcode_continues
                or metadata_continues
                or false
              then t.source else '' end,
         case when transcode_continues
                or metadata_continues
                or false
              then t.params end,
         coalesce(case when transcode_continues
                or metadata_continues
                or false
                       then t.user_id end, ''),
         coalesce(case when transcode_continues
                or metadata_continues
                or false
                       then t.traceparent end, ''),
         0 as task_done,
         array[t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts] as attempts,
         0
           + (t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 2
           + (t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 4 as to_notify,
         case when transcode_continues then t.transcode_token end,
         case when metadata_continues then t.metadata_token end
), recorded as (
  insert into outbox (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array_agg(id), array_agg(done | task_done), array_agg(started), array_agg(attempts)
    from updated having count(*) > 0
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage
              when 0 then 'ingest' end,
         case r.stage
              when 0 then locked.ingest_attempts end,
         case r.stage
              when 0 then locked.ingest_locked_by end,
         case r.stage
              when 0 then locked.ingest_locked_at end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    join unnest($4::uuid[], $5::int4[],
                $6::uuid[], $7::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token = case r.stage
                        when 0 then locked.ingest_token end
), notified as materialized (
  select count(pg_notify(channel, ''))
    from (select bit_or(to_notify) as to_notify from updated) as all_tasks
    join (values ('cuelight_video_transcode', 2),
                 ('cuelight_video_metadata', 4)) as stage (channel, bit)
      on to_notify & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select updated.* from updated cross join notified
 where not true = any($9::bool[])
    or (select concat(
         set_config('cuelight.continued_transcode', (count(*) filter (where started & 2 <> 0))::text, true),
         set_config('cuelight.continued_metadata', (count(*) filter (where started & 4 <> 0))::text, true))
          from updated) is not null;

/* complete publish of one task */
with me as materialized (
  select exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null) as alive
), locked as materialized (
  select ctid as row_ctid, id, priority, placement,
         publish_status,
         publish_attempts, publish_token, publish_locked_at, publish_locked_by
    from tasks
   where id = $2::uuid
     for no key update skip locked
), matched as (
  select locked.*,
         coalesce(publish_token = $3::uuid, false) as publish_done
    from locked
), unblocked as (
  select matched.*
    from me
   cross join matched
   where publish_done
), ranked as (
  select unblocked.*
    from unblocked
), step as materialized (
  select row_ctid,
         publish_done
    from ranked
), updated as (
  update tasks t set
         publish_status    = case when publish_done then 'completed' else publish_status end,
         publish_token     = case when publish_done then null else publish_token end,
         publish_locked_at = case when publish_done then null else publish_locked_at end,
         publish_locked_by = case when publish_done then null else publish_locked_by end
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0
           + publish_done::int * 16 as done,
         0 as started,
         0 as left_ready,
         t.priority,
         case when false
              then t.source else '' end,
         case when false
              then t.params end,
         coalesce(case when false
                       then t.user_id end, ''),
         coalesce(case when false
                       then t.traceparent end, ''),
         case when t.ingest_status = 'completed'
               and t.transcode_status = 'completed'
               and t.metadata_status = 'completed'
               and t.assemble_status = 'completed'
               and t.publish_status = 'completed' then 1 << 31 else 0 end as task_done,
         array[t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts] as attempts,
         0 as to_notify
), recorded as (
  insert into outbox (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array[id], array[done | task_done], array[started], array[attempts] from updated
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage
              when 4 then 'publish' end,
         case r.stage
              when 4 then locked.publish_attempts end,
         case r.stage
              when 4 then locked.publish_locked_by end,
         case r.stage
              when 4 then locked.publish_locked_at end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    join (values (4, $3::uuid, $4::text)) as r (stage, token, result)
      on r.token = case r.stage
                        when 4 then locked.publish_token end
)
select updated.* from updated;

/* complete ingest, transcode, metadata, assemble, publish */
with me as materialized (
  select exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null) as alive
), locked as materialized (
  select ctid as row_ctid, id, priority, placement,
         ingest_status,
         transcode_status,
         metadata_status,
         assemble_status,
         publish_status,
         transcode_run_at,
         metadata_run_at,
         assemble_run_at,
         publish_run_at,
         ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by,
         transcode_attempts, transcode_token, transcode_locked_at, transcode_locked_by,
         metadata_attempts, metadata_token, metadata_locked_at, metadata_locked_by,
         assemble_attempts, assemble_token, assemble_locked_at, assemble_locked_by,
         publish_attempts, publish_token, publish_locked_at, publish_locked_by
    from tasks
   where id = any($2::uuid[])
     for no key update skip locked
), matched as (
  select locked.*,
         coalesce(ingest_token = ingest_reported, false) as ingest_done,
         coalesce(transcode_token = transcode_reported, false) as transcode_done,
         coalesce(metadata_token = metadata_reported, false) as metadata_done,
         coalesce(assemble_token = assemble_reported, false) as assemble_done,
         coalesce(publish_token = publish_reported, false) as publish_done
    from locked
    join unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::uuid[])
         as r (task, ingest_reported, transcode_reported, metadata_reported, assemble_reported, publish_reported)
      on r.task = locked.id
), unblocked as (
  select matched.*,
         alive and transcode_status in ('pending', 'failed') and transcode_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, '', $1, now()) <= 0, false)) as transcode_ready,
         alive and metadata_status in ('pending', 'failed') and metadata_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'metadata', $1, now()) <= 0, false)) as metadata_ready,
         alive and assemble_status in ('pending', 'failed') and assemble_run_at is null
           and (transcode_done or transcode_status = 'completed')
           and (metadata_done or metadata_status = 'completed')
           and (transcode_done or metadata_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'assemble', $1, now()) <= 0, false)) as assemble_ready,
         alive and publish_status in ('pending', 'failed') and publish_run_at is null
           and (assemble_done or assemble_status = 'completed')
           and (assemble_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'publish', $1, now()) <= 0, false)) as publish_ready
    from me
   cross join matched
   where ingest_done
      or transcode_done
      or metadata_done
      or assemble_done
      or publish_done
), ranked as (
  select unblocked.*
    from unblocked
), step as materialized (
  select row_ctid,
         ingest_done,
         transcode_done,
         metadata_done,
         assemble_done,
         publish_done,
         transcode_ready,
         transcode_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.transcode_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.transcode_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, '', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as transcode_continues,
         metadata_ready,
         metadata_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.metadata_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.metadata_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'metadata', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as metadata_continues,
         assemble_ready,
         assemble_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.assemble_status in ('pending', 'failed')
    and waiting.transcode_status = 'completed'
    and waiting.metadata_status = 'completed'
    and waiting.assemble_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'assemble', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as assemble_continues,
         publish_ready,
         publish_ready and
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.publish_status in ('pending', 'failed')
    and waiting.assemble_status = 'completed'
    and waiting.publish_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'publish', $1, null) <= 0, false))
             order by waiting.priority desc, waiting.id limit 1), true) as publish_continues
    from ranked
), updated as (
  update tasks t set
         ingest_status    = case when ingest_done then 'completed' else ingest_status end,
         ingest_token     = case when ingest_done then null else ingest_token end,
         ingest_locked_at = case when ingest_done then null else ingest_locked_at end,
         ingest_locked_by = case when ingest_done then null else ingest_locked_by end,
         transcode_status    = case when transcode_done then 'completed'
                                    when transcode_continues then 'inprogress' else transcode_status end,
         transcode_attempts  = transcode_attempts + transcode_continues::int,
         transcode_token     = case when transcode_done then null
                                    when transcode_continues then gen_random_uuid() else transcode_token end,
         transcode_locked_at = case when transcode_done then null
                                    when transcode_continues then now() else transcode_locked_at end,
         transcode_locked_by = case when transcode_done then null
                                    when transcode_continues then $1 else transcode_locked_by end,
         metadata_status    = case when metadata_done then 'completed'
                                    when metadata_continues then 'inprogress' else metadata_status end,
         metadata_attempts  = metadata_attempts + metadata_continues::int,
         metadata_token     = case when metadata_done then null
                                    when metadata_continues then gen_random_uuid() else metadata_token end,
         metadata_locked_at = case when metadata_done then null
                                    when metadata_continues then now() else metadata_locked_at end,
         metadata_locked_by = case when metadata_done then null
                                    when metadata_continues then $1 else metadata_locked_by end,
         assemble_status    = case when assemble_done then 'completed'
                                    when assemble_continues then 'inprogress' else assemble_status end,
         assemble_attempts  = assemble_attempts + assemble_continues::int,
         assemble_token     = case when assemble_done then null
                                    when assemble_continues then gen_random_uuid() else assemble_token end,
         assemble_locked_at = case when assemble_done then null
                                    when assemble_continues then now() else assemble_locked_at end,
         assemble_locked_by = case when assemble_done then null
                                    when assemble_continues then $1 else assemble_locked_by end,
         publish_status    = case when publish_done then 'completed'
                                    when publish_continues then 'inprogress' else publish_status end,
         publish_attempts  = publish_attempts + publish_continues::int,
         publish_token     = case when publish_done then null
                                    when publish_continues then gen_random_uuid() else publish_token end,
         publish_locked_at = case when publish_done then null
                                    when publish_continues then now() else publish_locked_at end,
         publish_locked_by = case when publish_done then null
                                    when publish_continues then $1 else publish_locked_by end
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0
           + ingest_done::int * 1
           + transcode_done::int * 2
           + metadata_done::int * 4
           + assemble_done::int * 8
           + publish_done::int * 16 as done,
         0
           + transcode_continues::int * 2
           + metadata_continues::int * 4
           + assemble_continues::int * 8
           + publish_continues::int * 16 as started,
         0
           + (transcode_ready and not transcode_continues)::int * 2
           + (metadata_ready and not metadata_continues)::int * 4
           + (assemble_ready and not assemble_continues)::int * 8
           + (publish_ready and not publish_continues)::int * 16 as left_ready,
         t.priority,
         case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
              then t.source else '' end,
         case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
              then t.params end,
         coalesce(case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
                       then t.user_id end, ''),
         coalesce(case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
                       then t.traceparent end, ''),
         case when t.ingest_status = 'completed'
               and t.transcode_status = 'completed'
               and t.metadata_status = 'completed'
               and t.assemble_status = 'completed'
               and t.publish_status = 'completed' then 1 << 31 else 0 end as task_done,
         array[t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts] as attempts,
         0
           + (t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 2
           + (t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 4
           + (t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
              and (transcode_done or metadata_done))::int * 8
           + (t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
              and (assemble_done))::int * 16 as to_notify,
         case when transcode_continues then t.transcode_token end,
         case when metadata_continues then t.metadata_token end,
         case when assemble_continues then t.assemble_token end,
         case when publish_continues then t.publish_token end
), recorded as (
  insert into outbox (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array_agg(id), array_agg(done | task_done), array_agg(started), array_agg(attempts)
    from updated having count(*) > 0
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage
              when 0 then 'ingest'
              when 1 then 'transcode'
              when 2 then 'metadata'
              when 3 then 'assemble'
              when 4 then 'publish' end,
         case r.stage
              when 0 then locked.ingest_attempts
              when 1 then locked.transcode_attempts
              when 2 then locked.metadata_attempts
              when 3 then locked.assemble_attempts
              when 4 then locked.publish_attempts end,
         case r.stage
              when 0 then locked.ingest_locked_by
              when 1 then locked.transcode_locked_by
              when 2 then locked.metadata_locked_by
              when 3 then locked.assemble_locked_by
              when 4 then locked.publish_locked_by end,
         case r.stage
              when 0 then locked.ingest_locked_at
              when 1 then locked.transcode_locked_at
              when 2 then locked.metadata_locked_at
              when 3 then locked.assemble_locked_at
              when 4 then locked.publish_locked_at end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    join unnest($8::uuid[], $9::int4[],
                $10::uuid[], $11::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token = case r.stage
                        when 0 then locked.ingest_token
                        when 1 then locked.transcode_token
                        when 2 then locked.metadata_token
                        when 3 then locked.assemble_token
                        when 4 then locked.publish_token end
), notified as materialized (
  select count(pg_notify(channel, ''))
    from (select bit_or(to_notify) as to_notify from updated) as all_tasks
    join (values ('cuelight_video_transcode', 2),
                 ('cuelight_video_metadata', 4),
                 ('cuelight_video_assemble', 8),
                 ('cuelight_video_publish', 16)) as stage (channel, bit)
      on to_notify & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select updated.* from updated cross join notified;

/* complete ingest, transcode, metadata, assemble, publish, ranked */
with me as materialized (
  select exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null) as alive
), locked as materialized (
  select ctid as row_ctid, id, priority, placement,
         ingest_status,
         transcode_status,
         metadata_status,
         assemble_status,
         publish_status,
         transcode_run_at,
         metadata_run_at,
         assemble_run_at,
         publish_run_at,
         ingest_attempts, ingest_token, ingest_locked_at, ingest_locked_by,
         transcode_attempts, transcode_token, transcode_locked_at, transcode_locked_by,
         metadata_attempts, metadata_token, metadata_locked_at, metadata_locked_by,
         assemble_attempts, assemble_token, assemble_locked_at, assemble_locked_by,
         publish_attempts, publish_token, publish_locked_at, publish_locked_by
    from tasks
   where id = any($2::uuid[])
     for no key update skip locked
), matched as (
  select locked.*,
         coalesce(ingest_token = ingest_reported, false) as ingest_done,
         coalesce(transcode_token = transcode_reported, false) as transcode_done,
         coalesce(metadata_token = metadata_reported, false) as metadata_done,
         coalesce(assemble_token = assemble_reported, false) as assemble_done,
         coalesce(publish_token = publish_reported, false) as publish_done
    from locked
    join unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::uuid[])
         as r (task, ingest_reported, transcode_reported, metadata_reported, assemble_reported, publish_reported)
      on r.task = locked.id
), unblocked as (
  select matched.*,
         alive and transcode_status in ('pending', 'failed') and transcode_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, '', $1, now()) <= 0, false)) as transcode_ready,
         alive and metadata_status in ('pending', 'failed') and metadata_run_at is null
           and (ingest_done or ingest_status = 'completed')
           and (ingest_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'metadata', $1, now()) <= 0, false)) as metadata_ready,
         alive and assemble_status in ('pending', 'failed') and assemble_run_at is null
           and (transcode_done or transcode_status = 'completed')
           and (metadata_done or metadata_status = 'completed')
           and (transcode_done or metadata_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'assemble', $1, now()) <= 0, false)) as assemble_ready,
         alive and publish_status in ('pending', 'failed') and publish_run_at is null
           and (assemble_done or assemble_status = 'completed')
           and (assemble_done)
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'publish', $1, now()) <= 0, false)) as publish_ready
    from me
   cross join matched
   where ingest_done
      or transcode_done
      or metadata_done
      or assemble_done
      or publish_done
), ranked as (
  select unblocked.*,
         count(*) filter (where transcode_ready) over by_priority as transcode_rank,
         count(*) filter (where metadata_ready) over by_priority as metadata_rank,
         count(*) filter (where assemble_ready) over by_priority as assemble_rank,
         count(*) filter (where publish_ready) over by_priority as publish_rank
    from unblocked
  window by_priority as (order by priority desc, id rows unbounded preceding)
), step as materialized (
  select row_ctid,
         ingest_done,
         transcode_done,
         metadata_done,
         assemble_done,
         publish_done,
         transcode_ready,
         transcode_ready and transcode_rank <= case when
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.transcode_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.transcode_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, '', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit 1), true)
           then ($12::int4[])[2]
           when ($13::bool[])[2]
           then ($12::int4[])[2]
                - (select count(*) from (select from tasks waiting
             where waiting.transcode_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.transcode_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, '', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit ($12::int4[])[2]) as before)
           else 0 end as transcode_continues,
         metadata_ready,
         metadata_ready and metadata_rank <= case when
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.metadata_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.metadata_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'metadata', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit 1), true)
           then ($12::int4[])[3]
           when ($13::bool[])[3]
           then ($12::int4[])[3]
                - (select count(*) from (select from tasks waiting
             where waiting.metadata_status in ('pending', 'failed')
    and waiting.ingest_status = 'completed'
    and waiting.metadata_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'metadata', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit ($12::int4[])[3]) as before)
           else 0 end as metadata_continues,
         assemble_ready,
         assemble_ready and assemble_rank <= case when
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.assemble_status in ('pending', 'failed')
    and waiting.transcode_status = 'completed'
    and waiting.metadata_status = 'completed'
    and waiting.assemble_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'assemble', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit 1), true)
           then ($12::int4[])[4]
           when ($13::bool[])[4]
           then ($12::int4[])[4]
                - (select count(*) from (select from tasks waiting
             where waiting.assemble_status in ('pending', 'failed')
    and waiting.transcode_status = 'completed'
    and waiting.metadata_status = 'completed'
    and waiting.assemble_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'assemble', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit ($12::int4[])[4]) as before)
           else 0 end as assemble_continues,
         publish_ready,
         publish_ready and publish_rank <= case when
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from tasks waiting
             where waiting.publish_status in ('pending', 'failed')
    and waiting.assemble_status = 'completed'
    and waiting.publish_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'publish', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit 1), true)
           then ($12::int4[])[5]
           when ($13::bool[])[5]
           then ($12::int4[])[5]
                - (select count(*) from (select from tasks waiting
             where waiting.publish_status in ('pending', 'failed')
    and waiting.assemble_status = 'completed'
    and waiting.publish_run_at is null
               and (waiting.placement is null
                 or coalesce(cuelight_video_placement_wait(waiting.id, waiting.placement, 'publish', $1, null) <= 0, false))
               and ($14::uuid[] is null or waiting.id = any($14))
             order by waiting.priority desc, waiting.id limit ($12::int4[])[5]) as before)
           else 0 end as publish_continues
    from ranked
), updated as (
  update tasks t set
         ingest_status    = case when ingest_done then 'completed' else ingest_status end,
         ingest_token     = case when ingest_done then null else ingest_token end,
         ingest_locked_at = case when ingest_done then null else ingest_locked_at end,
         ingest_locked_by = case when ingest_done then null else ingest_locked_by end,
         transcode_status    = case when transcode_done then 'completed'
                                    when transcode_continues then 'inprogress' else transcode_status end,
         transcode_attempts  = transcode_attempts + transcode_continues::int,
         transcode_token     = case when transcode_done then null
                                    when transcode_continues then gen_random_uuid() else transcode_token end,
         transcode_locked_at = case when transcode_done then null
                                    when transcode_continues then now() else transcode_locked_at end,
         transcode_locked_by = case when transcode_done then null
                                    when transcode_continues then $1 else transcode_locked_by end,
         metadata_status    = case when metadata_done then 'completed'
                                    when metadata_continues then 'inprogress' else metadata_status end,
         metadata_attempts  = metadata_attempts + metadata_continues::int,
         metadata_token     = case when metadata_done then null
                                    when metadata_continues then gen_random_uuid() else metadata_token end,
         metadata_locked_at = case when metadata_done then null
                                    when metadata_continues then now() else metadata_locked_at end,
         metadata_locked_by = case when metadata_done then null
                                    when metadata_continues then $1 else metadata_locked_by end,
         assemble_status    = case when assemble_done then 'completed'
                                    when assemble_continues then 'inprogress' else assemble_status end,
         assemble_attempts  = assemble_attempts + assemble_continues::int,
         assemble_token     = case when assemble_done then null
                                    when assemble_continues then gen_random_uuid() else assemble_token end,
         assemble_locked_at = case when assemble_done then null
                                    when assemble_continues then now() else assemble_locked_at end,
         assemble_locked_by = case when assemble_done then null
                                    when assemble_continues then $1 else assemble_locked_by end,
         publish_status    = case when publish_done then 'completed'
                                    when publish_continues then 'inprogress' else publish_status end,
         publish_attempts  = publish_attempts + publish_continues::int,
         publish_token     = case when publish_done then null
                                    when publish_continues then gen_random_uuid() else publish_token end,
         publish_locked_at = case when publish_done then null
                                    when publish_continues then now() else publish_locked_at end,
         publish_locked_by = case when publish_done then null
                                    when publish_continues then $1 else publish_locked_by end
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0
           + ingest_done::int * 1
           + transcode_done::int * 2
           + metadata_done::int * 4
           + assemble_done::int * 8
           + publish_done::int * 16 as done,
         0
           + transcode_continues::int * 2
           + metadata_continues::int * 4
           + assemble_continues::int * 8
           + publish_continues::int * 16 as started,
         0
           + (transcode_ready and not transcode_continues)::int * 2
           + (metadata_ready and not metadata_continues)::int * 4
           + (assemble_ready and not assemble_continues)::int * 8
           + (publish_ready and not publish_continues)::int * 16 as left_ready,
         t.priority,
         case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
              then t.source else '' end,
         case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
              then t.params end,
         coalesce(case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
                       then t.user_id end, ''),
         coalesce(case when transcode_continues
                or metadata_continues
                or assemble_continues
                or publish_continues
                or false
                       then t.traceparent end, ''),
         case when t.ingest_status = 'completed'
               and t.transcode_status = 'completed'
               and t.metadata_status = 'completed'
               and t.assemble_status = 'completed'
               and t.publish_status = 'completed' then 1 << 31 else 0 end as task_done,
         array[t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts] as attempts,
         0
           + (t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 2
           + (t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
              and (ingest_done))::int * 4
           + (t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
              and (transcode_done or metadata_done))::int * 8
           + (t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
              and (assemble_done))::int * 16 as to_notify,
         case when transcode_continues then t.transcode_token end,
         case when metadata_continues then t.metadata_token end,
         case when assemble_continues then t.assemble_token end,
         case when publish_continues then t.publish_token end
), recorded as (
  insert into outbox (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array_agg(id), array_agg(done | task_done), array_agg(started), array_agg(attempts)
    from updated having count(*) > 0
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage
              when 0 then 'ingest'
              when 1 then 'transcode'
              when 2 then 'metadata'
              when 3 then 'assemble'
              when 4 then 'publish' end,
         case r.stage
              when 0 then locked.ingest_attempts
              when 1 then locked.transcode_attempts
              when 2 then locked.metadata_attempts
              when 3 then locked.assemble_attempts
              when 4 then locked.publish_attempts end,
         case r.stage
              when 0 then locked.ingest_locked_by
              when 1 then locked.transcode_locked_by
              when 2 then locked.metadata_locked_by
              when 3 then locked.assemble_locked_by
              when 4 then locked.publish_locked_by end,
         case r.stage
              when 0 then locked.ingest_locked_at
              when 1 then locked.transcode_locked_at
              when 2 then locked.metadata_locked_at
              when 3 then locked.assemble_locked_at
              when 4 then locked.publish_locked_at end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    join unnest($8::uuid[], $9::int4[],
                $10::uuid[], $11::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token = case r.stage
                        when 0 then locked.ingest_token
                        when 1 then locked.transcode_token
                        when 2 then locked.metadata_token
                        when 3 then locked.assemble_token
                        when 4 then locked.publish_token end
), notified as materialized (
  select count(pg_notify(channel, ''))
    from (select bit_or(to_notify) as to_notify from updated) as all_tasks
    join (values ('cuelight_video_transcode', 2),
                 ('cuelight_video_metadata', 4),
                 ('cuelight_video_assemble', 8),
                 ('cuelight_video_publish', 16)) as stage (channel, bit)
      on to_notify & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select updated.* from updated cross join notified
 where not true = any($13::bool[])
    or (select concat(
         set_config('cuelight.continued_transcode', (count(*) filter (where started & 2 <> 0))::text, true),
         set_config('cuelight.continued_metadata', (count(*) filter (where started & 4 <> 0))::text, true),
         set_config('cuelight.continued_assemble', (count(*) filter (where started & 8 <> 0))::text, true),
         set_config('cuelight.continued_publish', (count(*) filter (where started & 16 <> 0))::text, true))
          from updated) is not null;

/* promote due ingest */
update tasks set ingest_run_at = null,
       ready_at = case when ingest_attempts = 0
                       then coalesce(ready_at, ingest_run_at) else ready_at end
 where id in (select id from tasks
               where ingest_run_at <= now()
               order by ingest_run_at
               limit 1000
                 for no key update skip locked);

/* claim ingest */
with claimed as (
  update tasks t set
         ingest_status    = 'inprogress',
         ingest_attempts  = ingest_attempts + 1,
         ingest_token     = gen_random_uuid(),
         ingest_locked_at = now(),
         ingest_locked_by = $1
   where ctid = any (array(
         select ctid from tasks
          where id = any($3::uuid[]) and coalesce(ingest_status in ('pending', 'failed')
    and ingest_run_at is null, false)
            and exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null)
            and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'ingest', $1, null) <= 0, false))
          order by id
          limit $2
            for no key update skip locked))
  returning t.id, ingest_token as token, ingest_attempts as attempt,
            source, params, coalesce(user_id, ''), coalesce(traceparent, ''),
            extract(epoch from now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from attempts a
                where a.task_id = t.id and a.stage in ('ingest'))))::float8 as waited, priority
), recorded as (
  insert into outbox (type, worker_id, stage, tasks, attempts)
  select 'started', $1, 'ingest', array_agg(id), array_agg(attempt)
    from claimed having count(*) > 0
)
select * from claimed;

/* claim ingest */
with claimed as (
  update tasks t set
         ingest_status    = 'inprogress',
         ingest_attempts  = ingest_attempts + 1,
         ingest_token     = gen_random_uuid(),
         ingest_locked_at = now(),
         ingest_locked_by = $1
   where ctid = any (array(
         select ctid from tasks
          where ingest_status in ('pending', 'failed')
    and ingest_run_at is null and ($3::uuid[] is null or id = any($3))
            and exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null)
            and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'ingest', $1, null) <= 0, false))
          order by priority desc, id
          limit $2
            for no key update skip locked))
  returning t.id, ingest_token as token, ingest_attempts as attempt,
            source, params, coalesce(user_id, ''), coalesce(traceparent, ''),
            extract(epoch from now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from attempts a
                where a.task_id = t.id and a.stage in ('ingest'))))::float8 as waited, priority
), recorded as (
  insert into outbox (type, worker_id, stage, tasks, attempts)
  select 'started', $1, 'ingest', array_agg(id), array_agg(attempt)
    from claimed having count(*) > 0
)
select * from claimed;

/* claim ingest */
with claimed as (
  update tasks t set
         ingest_status    = 'inprogress',
         ingest_attempts  = ingest_attempts + 1,
         ingest_token     = gen_random_uuid(),
         ingest_locked_at = now(),
         ingest_locked_by = $1
   where ctid = any (array(
         select ctid from tasks
          where ingest_status in ('pending', 'failed')
    and ingest_run_at is null and ($3::uuid[] is null or id = any($3))
            and exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null)
            and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'ingest', $1, null) <= 0, false))
            and priority = $4 and id > $5
          order by priority desc, id
          limit $2
            for no key update skip locked))
  returning t.id, ingest_token as token, ingest_attempts as attempt,
            source, params, coalesce(user_id, ''), coalesce(traceparent, ''),
            extract(epoch from now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from attempts a
                where a.task_id = t.id and a.stage in ('ingest'))))::float8 as waited, priority
), recorded as (
  insert into outbox (type, worker_id, stage, tasks, attempts)
  select 'started', $1, 'ingest', array_agg(id), array_agg(attempt)
    from claimed having count(*) > 0
)
select * from claimed;

/* claim ingest */
with claimed as (
  update tasks t set
         ingest_status    = 'inprogress',
         ingest_attempts  = ingest_attempts + 1,
         ingest_token     = gen_random_uuid(),
         ingest_locked_at = now(),
         ingest_locked_by = $1
   where ctid = any (array(
         select ctid from tasks
          where ingest_status in ('pending', 'failed')
    and ingest_run_at is null and ($3::uuid[] is null or id = any($3))
            and exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null)
            and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'ingest', $1, null) <= 0, false))
          order by priority desc, id
          limit greatest($2 - coalesce(
                  nullif(current_setting('cuelight.continued_ingest', true), '')::int4, 0), 0)
            for no key update skip locked))
  returning t.id, ingest_token as token, ingest_attempts as attempt,
            source, params, coalesce(user_id, ''), coalesce(traceparent, ''),
            extract(epoch from now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from attempts a
                where a.task_id = t.id and a.stage in ('ingest'))))::float8 as waited, priority
), recorded as (
  insert into outbox (type, worker_id, stage, tasks, attempts)
  select 'started', $1, 'ingest', array_agg(id), array_agg(attempt)
    from claimed having count(*) > 0
)
select * from claimed;

/* find ready ingest */
select 
       (select true from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null
           and ($1::uuid[] is null or id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'ingest', $2, null) <= 0, false))
         order by priority desc, id limit 1) is not null,
       least(
         (select greatest(extract(epoch from ingest_run_at - now()), 0)::float8 from tasks
           where ingest_run_at is not null
           order by ingest_run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(id, placement, 'ingest', $2, null) as wait from tasks
                   where ingest_status in ('pending', 'failed')
    and ingest_run_at is null and placement is not null
                   order by id limit 100) as placed
           where wait > 0));

/* fail or release ingest */
with locked as materialized (
  select id, ingest_token as token, ingest_attempts as attempt,
         ingest_locked_by as locked_by, ingest_locked_at as locked_at
    from tasks where id = any($1::uuid[]) for no key update skip locked
), failed as materialized (
  select locked.*, r.outcome::cuelight_outcome, r.status::cuelight_status, r.retry_in, r.class, r.error
    from locked
    join unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::float8[], $6::text[], $7::text[])
         as r (id, token, outcome, status, retry_in, class, error) on r.id = locked.id and r.token = locked.token
), updated as (
  update tasks t set
         ingest_status    = failed.status,
         ingest_attempts  = greatest(ingest_attempts - (failed.outcome = 'released')::int, 0),
         ingest_token     = null,
         ingest_locked_at = null,
         ingest_locked_by = null,
         ingest_run_at    =
           case when failed.retry_in > 0 then now() + make_interval(secs => failed.retry_in) end,
         ready_at = coalesce(t.ready_at, t.created_at)
    from failed
   where t.id = failed.id
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome,
                            retry_at, error_class, error)
  select id, token, 'ingest', attempt, locked_by, locked_at, outcome,
         case when status = 'failed' or retry_in > 0 then now() + make_interval(secs => retry_in) end, class, error
    from failed
)
select token from failed;

/* promote due parts of transcode */
update parts set run_at = null, ready_at = run_at
 where (task_id, stage, part) in (
       select task_id, stage, part from parts p
         join tasks t on t.id = p.task_id
        where stage = 'transcode' and run_at <= now()
        order by run_at
        limit 1000
          for no key update of p skip locked for key share of t skip locked);

/* claim parts of transcode */
with claimed as (
  update parts p set
         status = 'inprogress', attempts = attempts + 1, token = gen_random_uuid(), locked_at = now(), locked_by = $1
   where ctid = any (array(
         select ctid from parts
          where stage = 'transcode' and status in ('pending', 'failed')
    and run_at is null and ($3::uuid[] is null or task_id = any($3))
            and exists (select from workers
                    where id = $1 and coalesce(stopped_at, lost_at) is null)
            and (placement is null
                 or coalesce(cuelight_video_placement_wait(task_id, placement, 'transcode', $1, ready_at) <= 0, false))
          order by priority desc, turn, task_id desc
          limit $2
            for no key update skip locked))
  returning p.*
), recorded as (
  insert into outbox (type, worker_id, stage, tasks, parts, attempts)
  select 'started', $1, 'transcode', array_agg(task_id), array_agg(part), array_agg(attempts)
    from claimed having count(*) > 0
)
select t.id, p.token, p.attempts, t.source, t.params, coalesce(t.user_id, ''), coalesce(t.traceparent, ''),
       extract(epoch from now() - p.ready_at)::float8, p.priority, t.transcode_parts, p.part, p.spec, p.turn
  from claimed p
  join tasks t on t.id = p.task_id;

/* find ready parts of transcode */
select 
       (select true from parts where stage = 'transcode' and status in ('pending', 'failed')
    and run_at is null
           and ($1::uuid[] is null or task_id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(task_id, placement, 'transcode', $2, ready_at) <= 0, false))
         order by priority desc, turn, task_id desc limit 1) is not null,
       least(
         (select greatest(extract(epoch from run_at - now()), 0)::float8 from parts
           where stage = 'transcode' and run_at is not null
           order by run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(task_id, placement, 'transcode', $2, ready_at) as wait
                    from (select * from parts where stage = 'transcode' and status in ('pending', 'failed')
    and run_at is null
                           order by priority desc, turn, task_id desc limit 100) as first_ready
                   where placement is not null) as placed
           where wait > 0));

/* divide transcode */
with locked as materialized (
  select id, priority, placement, transcode_token as token, transcode_attempts as attempt,
         transcode_locked_by as locked_by, transcode_locked_at as locked_at
    from tasks where id = any($2::uuid[]) for no key update skip locked
), matched as materialized (
  select locked.*, r.parts, r.made::int4[] as made, r.specs::jsonb as specs, r.counted, r.class, r.error
    from locked
    join unnest($2::uuid[], $3::uuid[], $4::int4[], $5::text[], $6::text[], $7::bool[], $8::text[], $9::text[])
         as r (id, token, parts, made, specs, counted, class, error) on r.id = locked.id and r.token = locked.token
), leftover as (
  delete from parts
   where task_id in (select id from matched) and stage = 'transcode' and status <> 'completed' returning task_id
), divided as materialized (
  select matched.*, coalesce((
         select turn - 1 from parts p
          where p.stage = 'transcode' and p.status in ('pending', 'failed')
    and p.run_at is null and p.priority = matched.priority
          order by p.priority desc, turn limit 1), 0) as turn
    from matched
   where id not in (select task_id from leftover)
), dropped as (
  delete from parts
   where ctid = any (array(
         select surplus.row_ctid
           from divided
          cross join lateral (
                select ctid as row_ctid from parts
                 where task_id = divided.id and stage = 'transcode' and part > divided.parts offset 0) as surplus))
), inserted as (
  insert into parts (task_id, stage, part, spec, priority, turn, placement)
  select id, 'transcode', s.part, s.spec, priority, turn + s.n, placement
    from divided
   cross join lateral rows from (unnest(made), jsonb_array_elements(specs)) with ordinality as s (part, spec, n)
      on conflict (task_id, stage, part) do update set
         spec = excluded.spec, priority = excluded.priority, turn = excluded.turn, placement = excluded.placement,
         ready_at = excluded.ready_at, status = 'pending', attempts = 0, result = null
), updated as (
  update tasks t set
         transcode_status     = 'divided',
         transcode_attempts   = greatest(transcode_attempts - (not counted)::int, 0),
         transcode_token      = null,
         transcode_locked_at  = null,
         transcode_locked_by  = null,
         transcode_parts      = divided.parts,
         transcode_open_parts = cardinality(made),
         ready_at = coalesce(t.ready_at, t.created_at)
    from divided
   where t.id = divided.id
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, error_class, error)
  select id, token, 'transcode', attempt, locked_by, locked_at, 'divided',
         case when counted then class end, case when counted then error end
    from divided
), recorded as (
  insert into outbox (type, worker_id, task_id, stage, attempt, token, data)
  select 'divided', $1, id, 'transcode', attempt, case when counted then token end,
         jsonb_strip_nulls(jsonb_build_object('parts', parts, 'kept', nullif(parts - cardinality(made), 0)))
    from divided order by id
), notified as materialized (
  select count(pg_notify('cuelight_video_transcode', ''))
    from (select from divided limit 1) as any_task where pg_notification_queue_usage() < 0.9
)
select token from divided cross join notified;

/* complete parts of transcode */
with locked as materialized (
  select id from tasks where id = any($2::uuid[]) for no key update skip locked
), completed as materialized (
  select p.row_ctid, p.task_id, p.part, p.token, p.attempts as attempt, p.locked_by, p.locked_at, r.result
    from locked
    join unnest($2::uuid[], $3::int4[], $4::uuid[], $5::text[]) as r (task, part, token, result) on r.task = locked.id
   cross join lateral (
         select *, ctid as row_ctid from parts
          where task_id = r.task and stage = 'transcode' and part = r.part and token = r.token
            for no key update skip locked) as p
   where (select true from parts q where q.ctid = p.row_ctid limit 1)
), updated as (
  update parts p set
         status = 'completed', token = null, locked_at = null, locked_by = null, ready_at = p.locked_at,
         result = completed.result::jsonb
    from completed
   where p.ctid = completed.row_ctid
), counted as (
  update tasks t set
         transcode_open_parts = transcode_open_parts - c.parts,
         transcode_status     = case when transcode_open_parts = c.parts and transcode_status = 'divided'
                                           then 'pending' else transcode_status end
    from (select task_id, count(*) as parts from completed group by task_id) as c
   where t.id = c.task_id
  returning transcode_open_parts = 0 as may_join
), history as (
  insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
  select task_id, token, 'transcode', part, attempt, locked_by, locked_at, 'completed' from completed
), recorded as (
  insert into outbox (type, worker_id, stage, tasks, parts, attempts)
  select 'part_completed', $1, 'transcode', array_agg(task_id), array_agg(part), array_agg(attempt)
    from completed having count(*) > 0
), joins as materialized (
  select coalesce(bool_or(may_join), false) as ready from counted
), notified as materialized (
  select count(pg_notify('cuelight_video_transcode', '')) from joins where ready and pg_notification_queue_usage() < 0.9
)
select token, joins.ready from completed cross join joins cross join notified;

/* fail or release parts of transcode */
with reported as materialized (
  select * from unnest($1::uuid[], $2::int4[], $3::uuid[], $4::text[], $5::text[], $6::float8[], $7::text[], $8::text[])
           as r (task, part, token, outcome, status, retry_in, class, error)
), locked as materialized (
  select id from tasks where id in (select task from reported where status = 'dead') for no key update skip locked
), locked_parts as materialized (
  select ctid as row_ctid, task_id, part from parts
   where task_id in (select id from locked) and stage = 'transcode' and status in ('pending', 'inprogress', 'failed')
     for no key update skip locked
), siblings as materialized (
  select * from locked_parts p where (select true from parts q where q.ctid = p.row_ctid limit 1)
), blocked as materialized (
  select task_id from parts
   where task_id in (select id from locked) and stage = 'transcode' and status in ('pending', 'inprogress', 'failed')
     and (task_id, part) not in (select task_id, part from siblings)
), failed as materialized (
  select p.row_ctid, p.task_id, p.part, p.token, p.attempts as attempt, p.locked_by, p.locked_at,
         r.outcome::cuelight_outcome, r.status::cuelight_status, r.class, r.error,
         case when r.retry_in > 0 then now() + make_interval(secs => r.retry_in) end as run_at
    from reported r
   cross join lateral (
         select p.*, p.ctid as row_ctid from parts p
           join tasks t on t.id = p.task_id
          where p.task_id = r.task and p.stage = 'transcode' and p.part = r.part and p.token = r.token
            for no key update of p skip locked for key share of t skip locked) as p
   where (r.status <> 'dead' or r.task in (select id from locked) and r.task not in (select task_id from blocked))
     and (select true from parts q where q.ctid = p.row_ctid limit 1)
), died as materialized (
  select distinct task_id from failed where status = 'dead'
), ended as materialized (
  select failed.*, status = 'failed' and task_id not in (select task_id from died) as again,
         case when status <> 'dead' and task_id in (select task_id from died) then 'cancelled' else status end as becomes
    from failed
), updated as (
  update parts p set
         status = ended.becomes, token = null, locked_at = null, locked_by = null, ready_at = now(),
         run_at = case when ended.becomes <> 'cancelled' then ended.run_at end,
         attempts = greatest(p.attempts - (ended.outcome = 'released')::int, 0)
    from ended
   where p.ctid = ended.row_ctid
), cancelled as (
  update parts p set status = 'cancelled', token = null, locked_at = null, locked_by = null, run_at = null
    from siblings
   where siblings.task_id in (select task_id from died)
     and (siblings.task_id, siblings.part) not in (select task_id, part from ended)
     and p.ctid = siblings.row_ctid
), stopped as (
  update tasks set transcode_status = 'dead'
   where id in (select task_id from died) and transcode_status = 'divided'
), history as (
  insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome,
                            retry_at, error_class, error)
  select task_id, token, 'transcode', part, attempt, locked_by, locked_at, outcome,
         case when again then coalesce(run_at, now()) when becomes = 'pending' then run_at end, class, error
    from ended
), recorded as (
  insert into outbox (type, worker_id, task_id, stage, part, attempt, token, data)
  select type, worker_id, task_id, 'transcode', part, attempt, token, data
    from (select 1 as step, task_id, part, attempt, token, locked_by as worker_id, null::jsonb as data,
                 case outcome when 'released' then 'released' when 'expired' then 'attempt_expired' else 'attempt_failed' end
                   as type
            from ended
           union all
          select 2, task_id, part, attempt, token, null, jsonb_build_object('run_at', coalesce(run_at, now())),
                 'retry_scheduled'
            from ended where again) as happened
   order by step, task_id, part
)
select token from failed;

/* expire parts of transcode */
with orphaned as materialized (
  select p.task_id, p.part, p.token, p.attempts, w.id is not null and w.lost_at is null
           or coalesce(w.registered_in <> (select cuelight_database_id()), false) as released,
         case when w.id is null then 'the worker was lost'
              when w.registered_in <> (select cuelight_database_id())
              then format('the worker, process %s on %s, used the database that this one was restored from',
                          w.pid, w.host)
              when w.lost_at is null then format('the worker, process %s on %s, stopped', w.pid, w.host)
              else format('the worker, process %s on %s, was lost', w.pid, w.host) end as error
    from parts p
    left join workers w on w.id = p.locked_by
   where p.status = 'inprogress' and p.stage = 'transcode'
     and (w.id is null or w.stopped_at is not null or w.lost_at is not null)
), locked as materialized (
  select id from tasks
   where id in (select task_id from orphaned where attempts >= $1 and not released) for no key update skip locked
), locked_parts as materialized (
  select ctid as row_ctid, task_id, part from parts
   where task_id in (select id from locked) and stage = 'transcode' and status in ('pending', 'inprogress', 'failed')
     for no key update skip locked
), siblings as materialized (
  select * from locked_parts p where (select true from parts q where q.ctid = p.row_ctid limit 1)
), blocked as materialized (
  select task_id from parts
   where task_id in (select id from locked) and stage = 'transcode' and status in ('pending', 'inprogress', 'failed')
     and (task_id, part) not in (select task_id, part from siblings)
), failed as materialized (
  select p.row_ctid, p.task_id, p.part, p.token, p.attempts as attempt, p.locked_by, p.locked_at,
         case when released then 'released' else 'expired' end::cuelight_outcome as outcome,
         case when released then 'pending' when p.attempts >= $1 then 'dead' else 'failed' end::cuelight_status as status,
         case when not released then 'expired' end as class, error, null::timestamptz as run_at
    from orphaned
   cross join lateral (
         select *, ctid as row_ctid from parts
          where task_id = orphaned.task_id and stage = 'transcode' and part = orphaned.part and token = orphaned.token
            for no key update skip locked) as p
   where (released or orphaned.attempts < $1
          or p.task_id in (select id from locked) and p.task_id not in (select task_id from blocked))
     and (select true from parts q where q.ctid = p.row_ctid limit 1)
), died as materialized (
  select distinct task_id from failed where status = 'dead'
), ended as materialized (
  select failed.*, status = 'failed' and task_id not in (select task_id from died) as again,
         case when status <> 'dead' and task_id in (select task_id from died) then 'cancelled' else status end as becomes
    from failed
), updated as (
  update parts p set
         status = ended.becomes, token = null, locked_at = null, locked_by = null, ready_at = now(),
         run_at = case when ended.becomes <> 'cancelled' then ended.run_at end,
         attempts = greatest(p.attempts - (ended.outcome = 'released')::int, 0)
    from ended
   where p.ctid = ended.row_ctid
), cancelled as (
  update parts p set status = 'cancelled', token = null, locked_at = null, locked_by = null, run_at = null
    from siblings
   where siblings.task_id in (select task_id from died)
     and (siblings.task_id, siblings.part) not in (select task_id, part from ended)
     and p.ctid = siblings.row_ctid
), stopped as (
  update tasks set transcode_status = 'dead'
   where id in (select task_id from died) and transcode_status = 'divided'
), history as (
  insert into attempts (task_id, token, stage, part, attempt, worker_id, started_at, outcome,
                            retry_at, error_class, error)
  select task_id, token, 'transcode', part, attempt, locked_by, locked_at, outcome,
         case when again then coalesce(run_at, now()) when becomes = 'pending' then run_at end, class, error
    from ended
), recorded as (
  insert into outbox (type, worker_id, task_id, stage, part, attempt, token, data)
  select type, worker_id, task_id, 'transcode', part, attempt, token, data
    from (select 1 as step, task_id, part, attempt, token, locked_by as worker_id, null::jsonb as data,
                 case outcome when 'released' then 'released' when 'expired' then 'attempt_expired' else 'attempt_failed' end
                   as type
            from ended
           union all
          select 2, task_id, part, attempt, token, null, jsonb_build_object('run_at', coalesce(run_at, now())),
                 'retry_scheduled'
            from ended where again) as happened
   order by step, task_id, part
)
select (select count(*) from failed), (select count(*) from orphaned);

/* find lost claims of parts */
select r.token,
       p.task_id is null or exists (
         select from attempts a
          where a.task_id = r.task and a.token = r.token and a.outcome = 'cancelled') as cancelled
  from unnest($1::uuid[], $2::text[], $3::int4[], $4::uuid[]) as r (task, stage, part, token)
  left join lateral (
       select * from parts where task_id = r.task and stage = r.stage and part = r.part limit 1) as p on true
 where (r.token = p.token) is not true;

/* find lost claims */
select r.token,
       t.id is null or exists (
         select from attempts a
          where a.task_id = r.id and a.token = r.token and a.outcome = 'cancelled') as cancelled
  from unnest($1::uuid[], $2::int4[], $3::uuid[]) as r (id, stage, token)
  left join tasks t on t.id = r.id
 where (r.token = case r.stage
         when 0 then t.ingest_token
         when 1 then t.transcode_token
         when 2 then t.metadata_token
         when 3 then t.assemble_token
         when 4 then t.publish_token end) is not true;

/* find held claims */
select t.id, held.stage, held.token, held.attempt, t.source, t.params,
       coalesce(t.user_id, ''), coalesce(t.traceparent, ''), held.locked_by,
       0 as part, null::jsonb as spec, held.parts
  from tasks t
 cross join lateral (values
       (0, t.ingest_token, t.ingest_attempts, t.ingest_locked_by,
           0),
       (1, t.transcode_token, t.transcode_attempts, t.transcode_locked_by,
           case when t.transcode_open_parts is null then 0 else t.transcode_parts end),
       (2, t.metadata_token, t.metadata_attempts, t.metadata_locked_by,
           0),
       (3, t.assemble_token, t.assemble_attempts, t.assemble_locked_by,
           0),
       (4, t.publish_token, t.publish_attempts, t.publish_locked_by,
           0)
       ) as held (stage, token, attempt, locked_by, parts)
 where (t.ingest_status = 'inprogress'
     or t.transcode_status = 'inprogress'
     or t.metadata_status = 'inprogress'
     or t.assemble_status = 'inprogress'
     or t.publish_status = 'inprogress')
   and (held.locked_by = any($1::uuid[]) or held.token = $2)
 union all
select t.id, case p.stage when 'transcode' then 1 end,
       p.token, p.attempts, t.source, t.params, coalesce(t.user_id, ''), coalesce(t.traceparent, ''), p.locked_by,
       p.part, p.spec, case p.stage when 'transcode' then t.transcode_parts end
  from parts p
  join tasks t on t.id = p.task_id
 where p.status = 'inprogress' and (p.locked_by = any($1::uuid[]) or p.token = $2);

/* find recorded outcomes */
select a.token
  from unnest($1::uuid[], $2::uuid[], $3::text[]) as r (id, token, outcome)
  join attempts a on a.task_id = r.id and a.token = r.token and a.outcome::text = r.outcome;

/* register worker */
with shape as (
  select from cuelight_schema where pipeline = $1 and shape = $8 for key share
)
insert into workers (pipeline, host, pid, version, capabilities, lease, process_identity, name, principal, metadata,
                     registered_in)
select $1, $2, $3, $4, coalesce($5::text::jsonb, '{}'), make_interval(secs => $6), $7, $9, $10,
       coalesce($11::text::jsonb, '{}'), cuelight_database_id() from shape
returning id;

/* limits of a transaction */
select set_config('lock_timeout', $1, true),
          set_config('application_name', coalesce('cuelight ' || $2::uuid, current_setting('application_name')), true),
          case when current_setting('server_version_num')::integer >= 170000
               then set_config('transaction_timeout', '30s', true) end;

/* record that a worker started */
insert into outbox (type, worker_id, data)
select 'worker_started', id, jsonb_build_object('name', name, 'host', host, 'pid', pid, 'version', version) from workers
  where id = $1;

/* heartbeat */
select known, draining, overdue, at from cuelight_heartbeat($1, $2::text::jsonb, nullif($3::bigint, 0), $4);

/* read pauses and expired workers */
select array(select stage from cuelight_pauses
              where pipeline = $2 and host in ('', (select host from workers where id = $1))),
       exists (select from workers w
                where pipeline = $2 and id <> $1 and stopped_at is null and lost_at is null
                  and (
         (greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > w.lease + make_interval(secs => $4)
       or greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > least(w.lease / 5, interval '7 s') + make_interval(secs => $3)
          and w.session is not null
          and not exists (
            select from pg_locks l
             where w.session <> 0 and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = w.session))
     and not exists (
            select from pg_stat_activity b
             where b.datname = current_database() and b.usename = current_user
               and b.application_name = 'cuelight ' || w.id
               and b.xact_start > clock_timestamp() - least(w.lease / 5, interval '7 s'))));

/* record progress */
insert into outbox (type, worker_id, data) values ('progress', $1, $2::text::jsonb);

/* commit asynchronously: the next heartbeat replaces one that a crash lost */
select set_config('synchronous_commit', 'off', true);

/* heartbeat of remote workers */
with renewed as (
  update workers w
     set heartbeat_at = least(clock_timestamp(),
                              greatest(w.heartbeat_at, clock_timestamp() - make_interval(secs => r.silence))),
         session = case when w.disconnected_at >= clock_timestamp() - make_interval(secs => r.silence) then w.session end,
         running = coalesce(r.running::jsonb, w.running)
    from unnest($1::uuid[], $2::text[], $3::float8[]) as r (id, running, silence)
   where w.id = r.id
     and w.id in (select id from workers
                   where id = any($1::uuid[]) and stopped_at is null and lost_at is null
                     for no key update skip locked)
)
select id, drain_at is not null from workers
 where id = any($1::uuid[]) and stopped_at is null and lost_at is null;

/* read pauses */
select stage, host from cuelight_pauses where pipeline = $1;

/* disconnect worker */
update workers set session = 0, disconnected_at = clock_timestamp() where id = $1 and stopped_at is null and lost_at is null;

/* deregister worker */
with stopped as (
  update workers set stopped_at = now(), running = '[]' where id = $1 and stopped_at is null
  returning id, name, host, pid
)
insert into outbox (type, worker_id, data)
select 'worker_stopped', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from stopped;

/* deregister worker without an event */
update workers set stopped_at = now(), running = '[]' where id = $1 and stopped_at is null;

/* stop workers registered by a principal */
with stopped as (
  update workers set stopped_at = now(), running = '[]'
   where principal = $1 and stopped_at is null and lost_at is null
  returning id, pipeline, name, host, pid
), recorded as (
  insert into outbox (type, worker_id, data)
  select 'worker_stopped', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from stopped where pipeline = $2
)
select id from stopped;

/* expire workers whose processes ended */
with lost as (
  update workers set lost_at = now(), running = '[]'
   where id in (select id from workers
                 where id = any($1::uuid[]) and stopped_at is null and lost_at is null
                   for no key update skip locked)
  returning id, name, host, pid
), recorded as (
  insert into outbox (type, worker_id, data)
  select 'worker_lost', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from lost
)
select id from lost;

/* end transactions of lost workers */
select w.id, case when (pg_has_role(b.usesysid, 'usage') or pg_has_role('pg_signal_backend', 'usage'))
                   and (me.rolsuper or not theirs.rolsuper) then pg_terminate_backend(b.pid) else false end
  from (select pid, usesysid, xact_start,
               case when application_name ~ '^cuelight [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    then substr(application_name, 10)::uuid end as worker
          from pg_stat_activity
         where datname = current_database()
        offset 0) b
  join workers w on w.id = b.worker
  join pg_roles theirs on theirs.oid = b.usesysid
  join pg_roles me on me.rolname = current_user
 where w.pipeline = $2 and w.id is distinct from $1
   and (w.stopped_at is not null or w.lost_at is not null or (
         (greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > w.lease + make_interval(secs => $4)
       or greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > least(w.lease / 5, interval '7 s') + make_interval(secs => $3)
          and w.session is not null
          and not exists (
            select from pg_locks l
             where w.session <> 0 and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = w.session))
     and not exists (
            select from pg_stat_activity b
             where b.datname = current_database() and b.usename = current_user
               and b.application_name = 'cuelight ' || w.id
               and b.xact_start > clock_timestamp() - least(w.lease / 5, interval '7 s')))
        and ($5::timestamptz is null
        or clock_timestamp() between $5 - interval '2 s' and $5 + interval '2 s'))
   and coalesce(b.xact_start < clock_timestamp() - least(w.lease / 5, interval '7 s'), true);

/* expire workers */
with lost as (
  update workers set lost_at = now(), running = '[]'
   where id in (
         select id from workers w
          where pipeline = $2 and stopped_at is null and lost_at is null and id is distinct from $1
            and (
         (greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > w.lease + make_interval(secs => $4)
       or greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > least(w.lease / 5, interval '7 s') + make_interval(secs => $3)
          and w.session is not null
          and not exists (
            select from pg_locks l
             where w.session <> 0 and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = w.session))
     and not exists (
            select from pg_stat_activity b
             where b.datname = current_database() and b.usename = current_user
               and b.application_name = 'cuelight ' || w.id
               and b.xact_start > clock_timestamp() - least(w.lease / 5, interval '7 s')))
            and ($5::timestamptz is null
        or clock_timestamp() between $5 - interval '2 s' and $5 + interval '2 s')
            and not exists (select from tasks t
                             where (t.ingest_status = 'inprogress'
     or t.transcode_status = 'inprogress'
     or t.metadata_status = 'inprogress'
     or t.assemble_status = 'inprogress'
     or t.publish_status = 'inprogress')
                               and (t.ingest_locked_by = w.id
                                    and t.ingest_locked_at > now() - least(w.lease / 5, interval '7 s')
                                 or t.transcode_locked_by = w.id
                                    and t.transcode_locked_at > now() - least(w.lease / 5, interval '7 s')
                                 or t.metadata_locked_by = w.id
                                    and t.metadata_locked_at > now() - least(w.lease / 5, interval '7 s')
                                 or t.assemble_locked_by = w.id
                                    and t.assemble_locked_at > now() - least(w.lease / 5, interval '7 s')
                                 or t.publish_locked_by = w.id
                                    and t.publish_locked_at > now() - least(w.lease / 5, interval '7 s')))
            and not exists (select from parts p
                             where p.status = 'inprogress' and p.locked_by = w.id
                               and p.locked_at > now() - least(w.lease / 5, interval '7 s'))
            for no key update skip locked)
  returning id, name, host, pid
), recorded as (
  insert into outbox (type, worker_id, data)
  select 'worker_lost', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from lost
)
select id, name from lost;

/* sweep: find expired claims and due stages */
select exists (select from tasks t where (t.ingest_status = 'inprogress'
     or t.transcode_status = 'inprogress'
     or t.metadata_status = 'inprogress'
     or t.assemble_status = 'inprogress'
     or t.publish_status = 'inprogress')
                  and (t.ingest_status = 'inprogress'
                      and not exists (select from workers
                    where id = t.ingest_locked_by and coalesce(stopped_at, lost_at) is null)
                    or t.transcode_status = 'inprogress'
                      and not exists (select from workers
                    where id = t.transcode_locked_by and coalesce(stopped_at, lost_at) is null)
                    or t.metadata_status = 'inprogress'
                      and not exists (select from workers
                    where id = t.metadata_locked_by and coalesce(stopped_at, lost_at) is null)
                    or t.assemble_status = 'inprogress'
                      and not exists (select from workers
                    where id = t.assemble_locked_by and coalesce(stopped_at, lost_at) is null)
                    or t.publish_status = 'inprogress'
                      and not exists (select from workers
                    where id = t.publish_locked_by and coalesce(stopped_at, lost_at) is null)))
       or exists (select from parts p where p.status = 'inprogress' and not exists (
            select from workers where id = p.locked_by and stopped_at is null and lost_at is null)),
       (select true from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null
           and ($1::uuid[] is null or id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'ingest', $2, null) <= 0, false))
         order by priority desc, id limit 1) is not null,
       least(
         (select greatest(extract(epoch from ingest_run_at - now()), 0)::float8 from tasks
           where ingest_run_at is not null
           order by ingest_run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(id, placement, 'ingest', $2, null) as wait from tasks
                   where ingest_status in ('pending', 'failed')
    and ingest_run_at is null and placement is not null
                   order by id limit 100) as placed
           where wait > 0)),
       (select true from tasks where transcode_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and transcode_run_at is null
           and ($1::uuid[] is null or id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, '', $2, null) <= 0, false))
         order by priority desc, id limit 1) is not null,
       least(
         (select greatest(extract(epoch from transcode_run_at - now()), 0)::float8 from tasks
           where transcode_run_at is not null
           order by transcode_run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(id, placement, '', $2, null) as wait from tasks
                   where transcode_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and transcode_run_at is null and placement is not null
                   order by id limit 100) as placed
           where wait > 0)),
       (select true from tasks where metadata_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and metadata_run_at is null
           and ($1::uuid[] is null or id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'metadata', $2, null) <= 0, false))
         order by priority desc, id limit 1) is not null,
       least(
         (select greatest(extract(epoch from metadata_run_at - now()), 0)::float8 from tasks
           where metadata_run_at is not null
           order by metadata_run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(id, placement, 'metadata', $2, null) as wait from tasks
                   where metadata_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and metadata_run_at is null and placement is not null
                   order by id limit 100) as placed
           where wait > 0)),
       (select true from tasks where assemble_status in ('pending', 'failed')
    and transcode_status = 'completed'
    and metadata_status = 'completed'
    and assemble_run_at is null
           and ($1::uuid[] is null or id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'assemble', $2, null) <= 0, false))
         order by priority desc, id limit 1) is not null,
       least(
         (select greatest(extract(epoch from assemble_run_at - now()), 0)::float8 from tasks
           where assemble_run_at is not null
           order by assemble_run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(id, placement, 'assemble', $2, null) as wait from tasks
                   where assemble_status in ('pending', 'failed')
    and transcode_status = 'completed'
    and metadata_status = 'completed'
    and assemble_run_at is null and placement is not null
                   order by id limit 100) as placed
           where wait > 0)),
       (select true from tasks where publish_status in ('pending', 'failed')
    and assemble_status = 'completed'
    and publish_run_at is null
           and ($1::uuid[] is null or id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'publish', $2, null) <= 0, false))
         order by priority desc, id limit 1) is not null,
       least(
         (select greatest(extract(epoch from publish_run_at - now()), 0)::float8 from tasks
           where publish_run_at is not null
           order by publish_run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(id, placement, 'publish', $2, null) as wait from tasks
                   where publish_status in ('pending', 'failed')
    and assemble_status = 'completed'
    and publish_run_at is null and placement is not null
                   order by id limit 100) as placed
           where wait > 0)),
       (select true from parts where stage = 'transcode' and status in ('pending', 'failed')
    and run_at is null
           and ($1::uuid[] is null or task_id = any($1))
           and (placement is null
                 or coalesce(cuelight_video_placement_wait(task_id, placement, 'transcode', $2, ready_at) <= 0, false))
         order by priority desc, turn, task_id desc limit 1) is not null,
       least(
         (select greatest(extract(epoch from run_at - now()), 0)::float8 from parts
           where stage = 'transcode' and run_at is not null
           order by run_at limit 1),
         (select min(wait)
            from (select cuelight_video_placement_wait(task_id, placement, 'transcode', $2, ready_at) as wait
                    from (select * from parts where stage = 'transcode' and status in ('pending', 'failed')
    and run_at is null
                           order by priority desc, turn, task_id desc limit 100) as first_ready
                   where placement is not null) as placed
           where wait > 0));

/* find aged ingest */
with recursive classes as (
  (select priority, 1 as n from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null order by priority, id desc limit 1)
   union all
  select higher.priority, n + 1
    from classes
   cross join lateral (select priority from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null and priority > classes.priority
                        order by priority, id desc limit 1) as higher
   where n < 50
)
select t.id
  from classes
 cross join lateral (select id, created_at, ready_at from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null
   and priority = classes.priority and (placement is null
                 or coalesce(cuelight_video_placement_wait(id, placement, 'ingest', $3, null) <= 0, false))
                      order by id limit $2) as t
 where classes.priority < (select priority from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null order by priority desc, id limit 1)
   and now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from attempts a
                where a.task_id = t.id and a.stage in ('ingest'))) > make_interval(secs => $1)
 order by t.id
 limit $2;

/* expire claims of ingest */
with orphaned as materialized (
  select t.id, t.ingest_token as token,
         w.id is not null and w.lost_at is null
           or coalesce(w.registered_in <> (select cuelight_database_id()), false) as released,
         case when w.id is null then 'the worker was lost'
              when w.registered_in <> (select cuelight_database_id())
              then format('the worker, process %s on %s, used the database that this one was restored from',
                          w.pid, w.host)
              when w.lost_at is null then format('the worker, process %s on %s, stopped', w.pid, w.host)
              else format('the worker, process %s on %s, was lost', w.pid, w.host) end as error
    from tasks t
    left join workers w on w.id = t.ingest_locked_by
   where (t.ingest_status = 'inprogress'
     or t.transcode_status = 'inprogress'
     or t.metadata_status = 'inprogress'
     or t.assemble_status = 'inprogress'
     or t.publish_status = 'inprogress')
     and t.ingest_status = 'inprogress'
     and (w.id is null or w.stopped_at is not null or w.lost_at is not null)
), expired as materialized (
  select t.id, orphaned.token, orphaned.released, orphaned.error, t.ingest_attempts as attempt,
         t.ingest_locked_by as locked_by, t.ingest_locked_at as locked_at
    from orphaned
    join tasks t on t.id = orphaned.id and t.ingest_token = orphaned.token
     for no key update of t skip locked
), updated as (
  update tasks t set
         ingest_status    = case when expired.released then 'pending'
                                          when expired.attempt >= $1 then 'dead' else 'failed' end::cuelight_status,
         ingest_attempts  = greatest(ingest_attempts - expired.released::int, 0),
         ingest_token     = null,
         ingest_locked_at = null,
         ingest_locked_by = null
    from expired
   where t.id = expired.id and t.ingest_token = expired.token
), history as (
  insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome,
                            retry_at, error_class, error)
  select id, token, 'ingest', attempt, locked_by, locked_at,
         case when released then 'released' else 'expired' end::cuelight_outcome,
         case when not released and attempt < $1 then now() end, case when not released then 'expired' end, error
    from expired
)
select (select count(*) from expired), (select count(*) from orphaned);

/* notify readers of events */
select pg_notify($1, '') where pg_notification_queue_usage() < 0.9;

/* prune events */
with pruned as (
  delete from outbox
   where id in (select id
                  from (select id, at from outbox order by id limit $2) as oldest
                 where at < now() - make_interval(secs => $1))
     and (select at from outbox order by id limit 1) < now() - make_interval(secs => $1)
  returning id
), recorded as (
  update cuelight_schema set pruned_to = greatest(pruned_to,
         (select max(e.id) from events e where e.outbox_id = (select max(id) from pruned)))
   where pipeline = $3 and exists (select from pruned)
)
select count(*) from pruned;

/* find a worker with the previous stages */
select host, pid, extract(epoch from now() - heartbeat_at)::float8 from workers w
 where pipeline = $1 and stopped_at is null and lost_at is null
   and heartbeat_at > now() - case when exists (
            select from pg_locks l
             where w.session <> 0 and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = w.session) then lease else least(w.lease / 5, interval '7 s') end
 order by heartbeat_at desc limit 1;

/* lock the pipeline's shape */
select shape from cuelight_schema where pipeline = $1 for update;

/* write audit entry */
insert into cuelight_audit (pipeline, actor, action, target, detail) values ($1, $2, $3, $4, $5::text::jsonb);

/* list audit entries */
select id, at, actor, action, target, detail
  from cuelight_audit
 where pipeline = $1 and ($2::bigint = 0 or id < $2)
 order by id desc
 limit $3;

/* delete task */
select id from cuelight_video_delete($1, $2, $3, case when $4 then now() end);

/* purge a deleted task at once */
update deleted_tasks set purge_at = now() where id = $1 and purged_at is null returning id;

/* undelete task */
select id from cuelight_video_undelete($1, $2);

/* get deleted task */
select 
d.id, d.task->>'source', coalesce(d.task->>'user_id', ''), (d.task->>'created_at')::timestamptz,
       d.deleted_at, d.deleted_by, d.keep_published, d.unpublished_at, d.purge_at, d.purging_at,
       d.task->'params', d.claimed_until,
       exists (select from tasks other
                where other.request_id = d.task->>'request_id' and other.source = d.task->>'source')
  from deleted_tasks d where d.id = $1 and d.purged_at is null;

/* list deleted tasks */
select 
d.id, d.task->>'source', coalesce(d.task->>'user_id', ''), (d.task->>'created_at')::timestamptz,
       d.deleted_at, d.deleted_by, d.keep_published, d.unpublished_at, d.purge_at, d.purging_at,
       d.task->'params', d.claimed_until,
       exists (select from tasks other
                where other.request_id = d.task->>'request_id' and other.source = d.task->>'source')
  from deleted_tasks d
 where d.purged_at is null and ($1 = '' or d.task->>'user_id' = $1)
   and ($2::uuid is null
        or (d.deleted_at, d.id) < (select a.deleted_at, a.id from deleted_tasks a where a.id = $2))
 order by d.deleted_at desc, d.id desc
 limit $3;

/* find deleted task by the end of its id */
select array(select id from deleted_tasks
              where purged_at is null and replace(id::text, '-', '') like '%' || replace($1, '-', '') limit 2);

/* find request ids of deleted tasks */
select distinct d.task->>'request_id' from deleted_tasks d where d.task->>'request_id' = any($1);

/* read events */
select id, at, type, task_id, coalesce(stage, ''), coalesce(part, 0), coalesce(attempt, 0), worker_id, data
  from cuelight_video_events($1, $2, $3);

/* read event watermark */
select cuelight_event_watermark(to_regclass($1)) << 16 | 65535;

/* read last allocated event */
select coalesce(pg_sequence_last_value(to_regclass($1)), 0) << 16 | 65535;

/* get task */
select 
t.id, t.created_at, t.priority, t.source, t.params,
       coalesce(t.request_id, ''), coalesce(t.user_id, ''), coalesce(t.submitted_by, ''), t.overridden_by, t.placement,
       (case when 'dead' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'dead'
       when 'cancelled' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'cancelled'
       when least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
        and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
            then 'completed'
       when 'inprogress' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) or 'divided' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when 'failed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'failed'
       when 'completed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when t.ingest_run_at is not null
        and greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null
            then 'scheduled'
       else 'pending' end),
       t.ingest_status::text, t.ingest_attempts, t.ingest_token,
       t.ingest_locked_at, t.ingest_locked_by, t.ingest_run_at,
       t.transcode_status::text, t.transcode_attempts, t.transcode_token,
       t.transcode_locked_at, t.transcode_locked_by, t.transcode_run_at, case when t.transcode_open_parts is not null then t.transcode_parts end, t.transcode_open_parts,
       t.metadata_status::text, t.metadata_attempts, t.metadata_token,
       t.metadata_locked_at, t.metadata_locked_by, t.metadata_run_at,
       t.assemble_status::text, t.assemble_attempts, t.assemble_token,
       t.assemble_locked_at, t.assemble_locked_by, t.assemble_run_at,
       t.publish_status::text, t.publish_attempts, t.publish_token,
       t.publish_locked_at, t.publish_locked_by, t.publish_run_at
  from tasks t where t.id = $1;

/* find task by the end of its id */
with compared as materialized (
  select id from tasks where id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') order by id desc
    limit $3
)
select array(select id from compared where replace(id::text, '-', '') like '%' || replace($1, '-', '') limit 2),
       (select count(*) from compared), (select id from compared order by id limit 1);

/* task history */
select task_id, stage, coalesce(part, 0), attempt, outcome::text, started_at, finished_at,
       coalesce(worker_name, ''), coalesce(host, ''), coalesce(pid, 0), retry_at,
       coalesce(error_class, ''), coalesce(error, ''), result, worker_id, token
  from history
 where task_id = $1
 order by started_at, finished_at, token;

/* stage result */
select coalesce(result, 'null') from attempts
 where task_id = $1 and stage = $2 and part is null and outcome = 'completed'
 order by finished_at desc limit 1;

/* find schema table */
select to_regclass(quote_ident(current_schema()) || '.cuelight_schema') is not null, current_schema() is not null;

/* schema version */
select s.version, coalesce((to_jsonb(s) ->> 'migrated_to')::integer, s.version), s.shape
  from cuelight_schema s where s.pipeline = $1;

/* lock migrations */
select pg_advisory_xact_lock(hashtext('cuelight migrate'));

/* limit lock waits */
set local lock_timeout = '1s';

/* set version */
update cuelight_schema
   set version = greatest(version, $2), migrated_to = $3, applied_at = now()
 where pipeline = $1;

/* retry task */
select id from cuelight_video_retry($1, $2);

/* set params */
update tasks set params = $2 where id = $1 returning id;

/* cancel task */
select id from cuelight_video_cancel($1);

/* override tasks */
update tasks t set
       overridden_by = $1,
       ingest_status    = case when ingest_status in ('completed', 'dead') then ingest_status else 'cancelled' end,
       ingest_token     = null,
       ingest_locked_at = null,
       ingest_locked_by = null,
       ingest_run_at    = null,
       transcode_status    = case when transcode_status in ('completed', 'dead') then transcode_status else 'cancelled' end,
       transcode_token     = null,
       transcode_locked_at = null,
       transcode_locked_by = null,
       transcode_open_parts = case when transcode_status in ('completed', 'dead') then transcode_open_parts end,
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
       scheduled_at = coalesce(greatest(case when ingest_status = 'pending' and ingest_attempts = 0 and ready_at is null
         then ingest_run_at end), scheduled_at)
 where id in (select id from tasks where id = any($2::uuid[]) order by id for no key update)
   and id <> $1 and overridden_by is null;

/* list parts */
select stage, part, status::text, attempts, token, locked_at, locked_by, run_at
  from parts where task_id = $1
 order by stage, part;

/* results of parts */
select coalesce(result, 'null') from parts
 where task_id = $1 and stage = $2 and status = 'completed'
 order by part;

/* pause */
insert into cuelight_pauses (pipeline, stage, host, paused_by) values ($1, $2, $3, $4)
on conflict do nothing;

/* resume */
delete from cuelight_pauses where pipeline = $1 and stage = $2 and host = $3;

/* list pauses */
select stage, host, paused_at, paused_by from cuelight_pauses where pipeline = $1 order by host, stage;

/* drain worker */
with draining as (
  update workers set drain_at = coalesce(drain_at, now())
   where id = $1 and pipeline = $2 and stopped_at is null and lost_at is null
  returning id
)
select id, case when pg_notification_queue_usage() < 0.9 then pg_notify($3, '')::text end from draining;

/* change priority */
update tasks set priority = $3 where id = any($1::uuid[]) and priority = $2;

/* find tasks to retry */
select t.id from tasks t where 
       t.overridden_by is null
   and ($9::text is not null or t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead' or t.ingest_status = 'failed'
     or t.transcode_status = 'failed'
     or t.metadata_status = 'failed'
     or t.assemble_status = 'failed'
     or t.publish_status = 'failed' or t.ingest_status = 'cancelled'
     or t.transcode_status = 'cancelled'
     or t.metadata_status = 'cancelled'
     or t.assemble_status = 'cancelled'
     or t.publish_status = 'cancelled')
   and 
       ($1 = '' or (case when 'dead' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'dead'
       when 'cancelled' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'cancelled'
       when least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
        and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
            then 'completed'
       when 'inprogress' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) or 'divided' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when 'failed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'failed'
       when 'completed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when t.ingest_run_at is not null
        and greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null
            then 'scheduled'
       else 'pending' end) = $1 and ($1 <> 'dead' or t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead'))
   and ($2 < 0 or $3 = case $2 when 0 then t.ingest_status::text when 1 then t.transcode_status::text when 2 then t.metadata_status::text when 3 then t.assemble_status::text when 4 then t.publish_status::text end)
   and ($4 = '' or t.user_id = $4)
   and ($5 = '' or t.request_id = $5)
   and ($6 = '' or strpos(t.source, $6) > 0
          and (not $8 or strpos(t.source, '://') = 0
               or strpos(regexp_replace(split_part(split_part(t.source, '#', 1), '?', 1),
                    '^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/]*@', '\1//'), $6) > 0)
        or strpos(t.params->>'title', $6) > 0)
   and ($7 = '' or exists (select from attempts a where a.task_id = t.id and strpos(a.error, $7) > 0)) order by t.id;

/* retry tasks */
select cuelight_video_retry_tasks(array(
       select t.id from tasks t where t.id = any($10::uuid[]) and 
       t.overridden_by is null
   and ($9::text is not null or t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead' or t.ingest_status = 'failed'
     or t.transcode_status = 'failed'
     or t.metadata_status = 'failed'
     or t.assemble_status = 'failed'
     or t.publish_status = 'failed' or t.ingest_status = 'cancelled'
     or t.transcode_status = 'cancelled'
     or t.metadata_status = 'cancelled'
     or t.assemble_status = 'cancelled'
     or t.publish_status = 'cancelled')
   and 
       ($1 = '' or (case when 'dead' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'dead'
       when 'cancelled' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'cancelled'
       when least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
        and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
            then 'completed'
       when 'inprogress' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) or 'divided' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when 'failed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'failed'
       when 'completed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when t.ingest_run_at is not null
        and greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null
            then 'scheduled'
       else 'pending' end) = $1 and ($1 <> 'dead' or t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead'))
   and ($2 < 0 or $3 = case $2 when 0 then t.ingest_status::text when 1 then t.transcode_status::text when 2 then t.metadata_status::text when 3 then t.assemble_status::text when 4 then t.publish_status::text end)
   and ($4 = '' or t.user_id = $4)
   and ($5 = '' or t.request_id = $5)
   and ($6 = '' or strpos(t.source, $6) > 0
          and (not $8 or strpos(t.source, '://') = 0
               or strpos(regexp_replace(split_part(split_part(t.source, '#', 1), '?', 1),
                    '^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/]*@', '\1//'), $6) > 0)
        or strpos(t.params->>'title', $6) > 0)
   and ($7 = '' or exists (select from attempts a where a.task_id = t.id and strpos(a.error, $7) > 0)) order by t.id for no key update), $9);

/* retry dead tasks */
select cuelight_video_retry_tasks(array(
       select t.id from tasks t where t.id = any($1::uuid[]) and t.overridden_by is null and (t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead')
        order by t.id for no key update));

/* count tasks to retry */
select count(*) from tasks t where 
       t.overridden_by is null
   and ($9::text is not null or t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead' or t.ingest_status = 'failed'
     or t.transcode_status = 'failed'
     or t.metadata_status = 'failed'
     or t.assemble_status = 'failed'
     or t.publish_status = 'failed' or t.ingest_status = 'cancelled'
     or t.transcode_status = 'cancelled'
     or t.metadata_status = 'cancelled'
     or t.assemble_status = 'cancelled'
     or t.publish_status = 'cancelled')
   and 
       ($1 = '' or (case when 'dead' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'dead'
       when 'cancelled' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'cancelled'
       when least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
        and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
            then 'completed'
       when 'inprogress' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) or 'divided' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when 'failed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'failed'
       when 'completed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when t.ingest_run_at is not null
        and greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null
            then 'scheduled'
       else 'pending' end) = $1 and ($1 <> 'dead' or t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead'))
   and ($2 < 0 or $3 = case $2 when 0 then t.ingest_status::text when 1 then t.transcode_status::text when 2 then t.metadata_status::text when 3 then t.assemble_status::text when 4 then t.publish_status::text end)
   and ($4 = '' or t.user_id = $4)
   and ($5 = '' or t.request_id = $5)
   and ($6 = '' or strpos(t.source, $6) > 0
          and (not $8 or strpos(t.source, '://') = 0
               or strpos(regexp_replace(split_part(split_part(t.source, '#', 1), '?', 1),
                    '^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/]*@', '\1//'), $6) > 0)
        or strpos(t.params->>'title', $6) > 0)
   and ($7 = '' or exists (select from attempts a where a.task_id = t.id and strpos(a.error, $7) > 0));

/* submit a task */
insert into tasks (id, source, params, priority, request_id, user_id, traceparent, submitted_by, placement, ingest_run_at)
values (cuelight_id(), $1, $2::text::jsonb, $3, $4, $5, $7, $8, $9::text::jsonb, case when $6::timestamptz > now() then $6::timestamptz end)
    on conflict (request_id, (coalesce(submitted_by, ''))) where request_id is not null do nothing
returning id;

/* submit tasks */
with given as materialized (
  select cuelight_id() as id, source, params::jsonb, priority, request_id, user_id, traceparent, submitted_by, placement::jsonb,
         case when run_at > now() then run_at end as run_at, n
    from unnest($1::text[], $2::text[], $3::int2[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[],
                $9::text[])
         with ordinality
         as given (source, params, priority, request_id, user_id, run_at, traceparent, submitted_by, placement, n)
), added as (
  insert into tasks (id, source, params, priority, request_id, user_id, traceparent, submitted_by, placement, ingest_run_at)
  select id, source, params, priority, request_id, user_id, traceparent, submitted_by, placement, run_at
    from given
   order by request_id, submitted_by, n
      on conflict (request_id, (coalesce(submitted_by, ''))) where request_id is not null do nothing
  returning id
)
select n, given.id, added.id is null as existed
  from given left join added on added.id = given.id
 order by n;

/* find submitted tasks */
select request_id, coalesce(submitted_by, ''), id, source from tasks
 where (request_id, coalesce(submitted_by, '')) in (select * from unnest($1::text[], $2::text[]));

/* list workers */
select 
id, pipeline, name, host, pid, version, principal, capabilities, metadata, extract(epoch from lease)::float8, process_identity,
       stopped_at is null and lost_at is null
         and (principal <> '' and session is null or exists (
            select from pg_locks l
             where w.session <> 0 and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = w.session)), started_at, heartbeat_at,
       extract(epoch from now() - heartbeat_at)::float8, stopped_at, lost_at, drain_at, running
  from workers w
 where pipeline = $1 and ($2 or (stopped_at is null and lost_at is null))
 order by id;

/* list stopped workers */
select 
id, pipeline, name, host, pid, version, principal, capabilities, metadata, extract(epoch from lease)::float8, process_identity,
       stopped_at is null and lost_at is null
         and (principal <> '' and session is null or exists (
            select from pg_locks l
             where w.session <> 0 and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = w.session)), started_at, heartbeat_at,
       extract(epoch from now() - heartbeat_at)::float8, stopped_at, lost_at, drain_at, running
  from workers w
 where pipeline = $1 and (stopped_at is not null or lost_at is not null)
   and id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by id desc
 limit $3;

/* count refused results */
select count(*) from (
  select from attempts a
    join workers w on w.id = a.worker_id and w.principal = $1
   where a.error_class = 'refused' and a.finished_at > $2
   limit $3) as refused;

/* claim deleted tasks with published files */
update deleted_tasks d set claimed_until = now() + make_interval(secs => $1)
 where d.id in (
       select id from deleted_tasks
        where unpublish_at <= now() and purging_at is null and coalesce(claimed_until, '-infinity') < now()
        order by unpublish_at limit $2 for update skip locked)
returning 
d.id, d.task->>'source', coalesce(d.task->>'user_id', ''), (d.task->>'created_at')::timestamptz,
       d.deleted_at, d.deleted_by, d.keep_published, d.unpublished_at, d.purge_at, d.purging_at,
       d.task->'params', d.claimed_until,
       exists (select from tasks other
                where other.request_id = d.task->>'request_id' and other.source = d.task->>'source');

/* record that published files were removed */
update deleted_tasks
   set unpublished_at = coalesce(unpublished_at, now()), claimed_until = null,
       unpublish_at = case when unpublished_at is null then now() + interval '1 min' end
 where id = $1 and claimed_until = $2;

/* postpone the removal of published files */
update deleted_tasks set claimed_until = null, unpublish_at = now() + interval '1 min'
 where id = $1 and claimed_until = $2;

/* claim deleted tasks to purge */
with at_its_time as (
  select id from deleted_tasks
   where purged_at is null and purge_at <= now() and coalesce(claimed_until, '-infinity') < now()
   order by purge_at limit $2 for update skip locked
), after_retention as (
  select id from deleted_tasks
   where purged_at is null and purge_at is null and deleted_at < now() - make_interval(secs => $3)
     and coalesce(claimed_until, '-infinity') < now()
   order by deleted_at limit $2 for update skip locked
)
update deleted_tasks d
   set claimed_until = now() + make_interval(secs => $1), purging_at = coalesce(d.purging_at, now())
 where d.id in (select id from at_its_time union all select id from after_retention)
returning 
d.id, d.task->>'source', coalesce(d.task->>'user_id', ''), (d.task->>'created_at')::timestamptz,
       d.deleted_at, d.deleted_by, d.keep_published, d.unpublished_at, d.purge_at, d.purging_at,
       d.task->'params', d.claimed_until,
       exists (select from tasks other
                where other.request_id = d.task->>'request_id' and other.source = d.task->>'source');

/* purge deleted tasks */
with remembered as (
  update deleted_tasks
     set purged_at = now(), claimed_until = null, unpublish_at = null, task = jsonb_build_object('request_id', task -> 'request_id')
   where id = $1 and purging_at is not null and purged_at is null
     and $2 <> '' and starts_with(task ->> 'request_id', $2)
  returning id
), removed as (
  delete from deleted_tasks
   where id = $1 and purging_at is not null and purged_at is null
     and ($2 = '' or not coalesce(starts_with(task ->> 'request_id', $2), false))
  returning id
), purged as (
  select id from remembered union all select id from removed
), history as (
  delete from attempts a using purged where a.task_id = purged.id
)
insert into outbox (type, task_id) select 'purged', id from purged;

/* find dead tasks */
with newest as (
  select * from tasks t where (t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead') and t.overridden_by is null
), dead as (
  select t.id, t.source, coalesce(t.params->>'title', '') as title, coalesce(t.user_id, '') as user_id,
         by.stage, by.attempts, by.position
    from newest t
   cross join lateral (values
         ('ingest', t.ingest_status, t.ingest_attempts, 0),
         ('transcode', t.transcode_status, t.transcode_attempts, 1),
         ('metadata', t.metadata_status, t.metadata_attempts, 2),
         ('assemble', t.assemble_status, t.assemble_attempts, 3),
         ('publish', t.publish_status, t.publish_attempts, 4))
         as by (stage, status, attempts, position)
   where by.status = 'dead'
     and ($1 = '' or by.stage = $1)
     and ($3 = '' or t.user_id = $3)
     and ($4 = '' or strpos(t.source, $4) > 0 or strpos(t.params->>'title', $4) > 0)
     and ($6::uuid[] is null or t.id = any($6))
), last as (
  select dead.*, coalesce(a.error_class, '') as class, coalesce(a.error, '') as error, a.finished_at as died_at,
         regexp_replace(regexp_replace(left(split_part(coalesce(a.error, ''), E'\n', 1), 400),
           '"[^"]*"|''[^'']*''|[a-z]+://[^ ]+|(^|(?<=[ :=(]))/[^ :]+', '…', 'g'),
           '\m[0-9a-f]{8,}\M|[0-9]+([.:][0-9]+)*', 'N', 'g') as pattern
    from dead
    left join lateral (
         select error_class, error, finished_at from attempts a
          where a.task_id = dead.id and a.stage = dead.stage and a.outcome not in ('released', 'cancelled')
          order by finished_at desc limit 1) as a on true
), classified as (
  select *, left(md5(stage || ' ' || class || ' ' || pattern), 12) as key from last
   where ($5 = '' or strpos(error, $5) > 0)
), chosen as (
  select * from classified where ($2 = '' or key = $2)
)
select distinct id from chosen order by id;

/* latency */
with span as (
  select coalesce($1, now()) - make_interval(secs => $2) as since, make_interval(secs => $2 / $3) as step
), slices as (
  select since + step * (n::float8 / $4::int) as since, since + step * ((n + 1)::float8 / $4::int) as until
    from span cross join generate_series(0, $3::int * $4::int - 1) as n
), sample as materialized (
  select t.id, t.created_at, t.ready_at
    from slices
   cross join lateral (
         select id, created_at, ready_at from tasks
          where id >= (lpad(to_hex(floor(extract(epoch from slices.since) * 1000)::bigint), 12, '0')
                       || repeat('0', 20))::uuid
            and id < (lpad(to_hex(floor(extract(epoch from slices.until) * 1000)::bigint), 12, '0')
                       || repeat('0', 20))::uuid
          order by id limit $5) as t
), tried as materialized (
  select a.*, sample.created_at as submitted_at, sample.ready_at
    from sample cross join lateral (select * from attempts where task_id = sample.id offset 0) as a
), 
needs (stage, need) as (values
       ('transcode', 'ingest'),
       ('metadata', 'ingest'),
       ('assemble', 'transcode'),
       ('assemble', 'metadata'),
       ('publish', 'assemble'),
       ('', '')
), first as (
  select task_id, submitted_at, ready_at, stage, min(started_at) as started_at,
         min(finished_at) filter (where outcome = 'completed') as completed_at
    from tried group by 1, 2, 3, 4
), waited as (
  select f.submitted_at,
         extract(epoch from greatest(f.started_at - coalesce(
           max(n.completed_at), case when f.ready_at <= f.started_at then f.ready_at end, f.submitted_at),
           '0')) as seconds
    from first f
    left join needs on needs.stage = f.stage
    left join first n on n.task_id = f.task_id and n.stage = needs.need
   group by f.task_id, f.submitted_at, f.ready_at, f.stage, f.started_at
), measured as (
  select -2 as kind, submitted_at, seconds from waited
  union all
  select case stage when 'ingest' then 0 when 'transcode' then 1 when 'metadata' then 2 when 'assemble' then 3 when 'publish' then 4 end, submitted_at,
         extract(epoch from finished_at - started_at)
    from tried where outcome = 'completed'
)
select interval, kind, count(*), percentile_cont(array[0.5, 0.95, 0.99]) within group (order by seconds)
  from (select kind, seconds,
               floor(extract(epoch from submitted_at - span.since) / extract(epoch from span.step))::int as interval
          from measured cross join span) as numbered
 where kind is not null
 group by grouping sets ((interval, kind), (kind))
 order by interval nulls first, kind;

/* start of the span */
select coalesce($1, now()) - make_interval(secs => $2);

/* progress of parts */
select d.task, d.stage, c.n, c.completed, c.failed, c.dead, c.retry_at,
       coalesce(c.tokens, '{}'), coalesce(c.workers, '{}'), coalesce(c.ages, '{}'),
       coalesce((select avg(extract(epoch from a.finished_at - a.started_at))
                   from attempts a
                  where a.task_id = d.task and a.stage = d.stage and a.part is not null and a.outcome = 'completed'
                    and a.started_at >= (select max(b.started_at) from attempts b
                                          where b.task_id = d.task and b.stage = d.stage and b.outcome = 'divided')),
                0)::float8
  from unnest($1::uuid[], $2::text[]) as d (task, stage)
 cross join lateral (
       select count(*) as n, count(*) filter (where status = 'completed') as completed,
              count(*) filter (where status = 'failed') as failed, count(*) filter (where status = 'dead') as dead,
              min(run_at) filter (where status = 'failed') as retry_at,
              array_agg(token order by part) filter (where status = 'inprogress') as tokens,
              array_agg(locked_by order by part) filter (where status = 'inprogress') as workers,
              array_agg(extract(epoch from now() - locked_at)::float8 order by part)
                filter (where status = 'inprogress') as ages
         from parts where task_id = d.task and stage = d.stage) as c
 where c.n > 0;

/* stats */
with running as materialized (
  select t.ingest_status in ('inprogress') as ingest_running, t.transcode_status in ('inprogress', 'divided') as transcode_running, t.metadata_status in ('inprogress') as metadata_running, t.assemble_status in ('inprogress') as assemble_running, t.publish_status in ('inprogress') as publish_running
    from tasks t where t.ingest_status = 'inprogress'
     or t.transcode_status = 'inprogress'
     or t.metadata_status = 'inprogress'
     or t.assemble_status = 'inprogress'
     or t.publish_status = 'inprogress'
     or t.transcode_status = 'divided' limit 1000
)
select -1 as stage,
       (select count(*) from ((select id from tasks t where t.ingest_status in ('pending', 'failed')
    and t.ingest_run_at is null limit 1000) union
        (select id from tasks t where t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.transcode_run_at is null limit 1000) union
        (select id from tasks t where t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.metadata_run_at is null limit 1000) union
        (select id from tasks t where t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
    and t.assemble_run_at is null limit 1000) union
        (select id from tasks t where t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
    and t.publish_run_at is null limit 1000)) as ready) as ready,
       (select count(*) from running),
       (select count(*) from (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 1 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'pending' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) and (case when 'dead' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'dead'
       when 'cancelled' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'cancelled'
       when least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
        and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed'
            then 'completed'
       when 'inprogress' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) or 'divided' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when 'failed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'failed'
       when 'completed' in (t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status)
            then 'inprogress'
       when t.ingest_run_at is not null
        and greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null
            then 'scheduled'
       else 'pending' end) = 'scheduled' limit 1000) as few),
       (select count(*) from ((select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 0 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'failed' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 1 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'failed' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 2 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'failed' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 1 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 2 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'completed' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 1 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'inprogress' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 2 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'inprogress' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 2 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'pending' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000) union all
        (select from tasks t where (case when coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is null then 0
        when greatest(t.ingest_attempts, t.transcode_attempts, t.metadata_attempts, t.assemble_attempts,
           t.publish_attempts) = 0
        and t.ready_at is null then 1 else 2 end) = 2 and greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) = 'divided' and (least(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'completed'
    or greatest(t.ingest_status, t.transcode_status, t.metadata_status, t.assemble_status,
           t.publish_status) >= 'failed'
    or coalesce(t.ingest_run_at, t.transcode_run_at, t.metadata_run_at, t.assemble_run_at,
           t.publish_run_at) is not null) limit 1000)) as retrying),
       (select count(*) from (
        select from tasks t where (t.ingest_status = 'dead'
     or t.transcode_status = 'dead'
     or t.metadata_status = 'dead'
     or t.assemble_status = 'dead'
     or t.publish_status = 'dead') and t.overridden_by is null limit 1000) as few),
       0::bigint, 0::float8
union all
select 0, (select count(*) from (select from tasks t where t.ingest_status in ('pending', 'failed')
    and t.ingest_run_at is null limit 1000) as few),
       (select count(*) from running where ingest_running), 0, 0, 0,
       coalesce((select greatest(reltuples, 0)::bigint from pg_class
                  where oid = to_regclass('tasks_ingest_ready')), 0),
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from tasks t where t.ingest_status in ('pending', 'failed')
    and t.ingest_run_at is null order by priority, id desc limit 1)
           union all
           select (select t.priority from tasks t where t.ingest_status in ('pending', 'failed')
    and t.ingest_run_at is null and t.priority > l.priority
                    order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select next.*
                   from (select priority from levels where priority is not null limit 50) as l
                  cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                       where t.ingest_status in ('pending', 'failed')
    and t.ingest_run_at is null and t.priority = l.priority
                                       order by t.id limit 200) as next
                  limit 1000) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from attempts a
                               where a.task_id = t.id
                                 and a.stage in ('ingest')) as since)), 0)::float8
union all
select 1, (select count(*) from (select from tasks t where t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.transcode_run_at is null limit 1000) as few),
       (select count(*) from running where transcode_running), 0, 0, 0,
       coalesce((select greatest(reltuples, 0)::bigint from pg_class
                  where oid = to_regclass('tasks_transcode_ready')), 0),
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from tasks t where t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.transcode_run_at is null order by priority, id desc limit 1)
           union all
           select (select t.priority from tasks t where t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.transcode_run_at is null and t.priority > l.priority
                    order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select next.*
                   from (select priority from levels where priority is not null limit 50) as l
                  cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                       where t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.transcode_run_at is null and t.priority = l.priority
                                       order by t.id limit 200) as next
                  limit 1000) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from attempts a
                               where a.task_id = t.id
                                 and a.stage in ('transcode', 'ingest')) as since)), 0)::float8
union all
select 2, (select count(*) from (select from tasks t where t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.metadata_run_at is null limit 1000) as few),
       (select count(*) from running where metadata_running), 0, 0, 0,
       coalesce((select greatest(reltuples, 0)::bigint from pg_class
                  where oid = to_regclass('tasks_metadata_ready')), 0),
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from tasks t where t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.metadata_run_at is null order by priority, id desc limit 1)
           union all
           select (select t.priority from tasks t where t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.metadata_run_at is null and t.priority > l.priority
                    order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select next.*
                   from (select priority from levels where priority is not null limit 50) as l
                  cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                       where t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.metadata_run_at is null and t.priority = l.priority
                                       order by t.id limit 200) as next
                  limit 1000) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from attempts a
                               where a.task_id = t.id
                                 and a.stage in ('metadata', 'ingest')) as since)), 0)::float8
union all
select 3, (select count(*) from (select from tasks t where t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
    and t.assemble_run_at is null limit 1000) as few),
       (select count(*) from running where assemble_running), 0, 0, 0,
       coalesce((select greatest(reltuples, 0)::bigint from pg_class
                  where oid = to_regclass('tasks_assemble_ready')), 0),
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from tasks t where t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
    and t.assemble_run_at is null order by priority, id desc limit 1)
           union all
           select (select t.priority from tasks t where t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
    and t.assemble_run_at is null and t.priority > l.priority
                    order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select next.*
                   from (select priority from levels where priority is not null limit 50) as l
                  cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                       where t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
    and t.assemble_run_at is null and t.priority = l.priority
                                       order by t.id limit 200) as next
                  limit 1000) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from attempts a
                               where a.task_id = t.id
                                 and a.stage in ('assemble', 'transcode', 'metadata')) as since)), 0)::float8
union all
select 4, (select count(*) from (select from tasks t where t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
    and t.publish_run_at is null limit 1000) as few),
       (select count(*) from running where publish_running), 0, 0, 0,
       coalesce((select greatest(reltuples, 0)::bigint from pg_class
                  where oid = to_regclass('tasks_publish_ready')), 0),
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from tasks t where t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
    and t.publish_run_at is null order by priority, id desc limit 1)
           union all
           select (select t.priority from tasks t where t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
    and t.publish_run_at is null and t.priority > l.priority
                    order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select next.*
                   from (select priority from levels where priority is not null limit 50) as l
                  cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                       where t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
    and t.publish_run_at is null and t.priority = l.priority
                                       order by t.id limit 200) as next
                  limit 1000) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from attempts a
                               where a.task_id = t.id
                                 and a.stage in ('publish', 'assemble')) as since)), 0)::float8
 order by stage;

/* find overridden tasks */
select id from tasks where overridden_by = $1 order by id desc limit 100;

/* snapshot */
select 'tasks' as metric, 'ingest' as label1, 'ready' as label2,
       case when few.n < 1000 then few.n
            else greatest(few.n, (select reltuples from pg_class
                                   where oid = to_regclass('tasks_ingest_ready'))) end as value
  from (select count(*)::float8 as n from (select from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null limit 1000) as few) as few
union all
select 'tasks', 'ingest', 'scheduled',
       (select count(*) from (select from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 1 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'pending' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) and (case when 'dead' in (ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
            then 'dead'
       when 'cancelled' in (ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
            then 'cancelled'
       when least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'completed'
        and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'completed'
            then 'completed'
       when 'inprogress' in (ingest_status, transcode_status, metadata_status, assemble_status, publish_status) or 'divided' in (ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
            then 'inprogress'
       when 'failed' in (ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
            then 'failed'
       when 'completed' in (ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
            then 'inprogress'
       when ingest_run_at is not null
        and greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null
            then 'scheduled'
       else 'pending' end) = 'scheduled' limit 1000) as few)
union all
select 'oldest_ready_seconds', 'ingest', '', extract(epoch from now() - (
  with recursive levels (priority) as (
    (select priority from tasks where ingest_status in ('pending', 'failed')
    and ingest_run_at is null order by priority, id desc limit 1)
    union all
    select (select t.priority from tasks t where t.ingest_status in ('pending', 'failed')
    and t.ingest_run_at is null and t.priority > l.priority
             order by t.priority, t.id desc limit 1)
      from levels l where l.priority is not null
  )
  select min(since.at)
    from (select next.*
            from (select priority from levels where priority is not null limit 50) as l
           cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                where t.ingest_status in ('pending', 'failed')
    and t.ingest_run_at is null and t.priority = l.priority order by t.id limit 200) as next
           limit 1000) as t
   cross join lateral (select greatest(t.created_at, t.ready_at, max(greatest(a.finished_at, a.retry_at))) as at
                         from attempts a
                        where a.task_id = t.id
                          and a.stage in ('ingest')) as since))
union all

select 'tasks' as metric, 'transcode' as label1, 'ready' as label2,
       case when few.n < 1000 then few.n
            else greatest(few.n, (select reltuples from pg_class
                                   where oid = to_regclass('tasks_transcode_ready'))) end as value
  from (select count(*)::float8 as n from (select from tasks where transcode_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and transcode_run_at is null limit 1000) as few) as few
union all
select 'oldest_ready_seconds', 'transcode', '', extract(epoch from now() - (
  with recursive levels (priority) as (
    (select priority from tasks where transcode_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and transcode_run_at is null order by priority, id desc limit 1)
    union all
    select (select t.priority from tasks t where t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.transcode_run_at is null and t.priority > l.priority
             order by t.priority, t.id desc limit 1)
      from levels l where l.priority is not null
  )
  select min(since.at)
    from (select next.*
            from (select priority from levels where priority is not null limit 50) as l
           cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                where t.transcode_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.transcode_run_at is null and t.priority = l.priority order by t.id limit 200) as next
           limit 1000) as t
   cross join lateral (select greatest(t.created_at, t.ready_at, max(greatest(a.finished_at, a.retry_at))) as at
                         from attempts a
                        where a.task_id = t.id
                          and a.stage in ('transcode', 'ingest')) as since))
union all

select 'tasks' as metric, 'metadata' as label1, 'ready' as label2,
       case when few.n < 1000 then few.n
            else greatest(few.n, (select reltuples from pg_class
                                   where oid = to_regclass('tasks_metadata_ready'))) end as value
  from (select count(*)::float8 as n from (select from tasks where metadata_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and metadata_run_at is null limit 1000) as few) as few
union all
select 'oldest_ready_seconds', 'metadata', '', extract(epoch from now() - (
  with recursive levels (priority) as (
    (select priority from tasks where metadata_status in ('pending', 'failed')
    and ingest_status = 'completed'
    and metadata_run_at is null order by priority, id desc limit 1)
    union all
    select (select t.priority from tasks t where t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.metadata_run_at is null and t.priority > l.priority
             order by t.priority, t.id desc limit 1)
      from levels l where l.priority is not null
  )
  select min(since.at)
    from (select next.*
            from (select priority from levels where priority is not null limit 50) as l
           cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                where t.metadata_status in ('pending', 'failed')
    and t.ingest_status = 'completed'
    and t.metadata_run_at is null and t.priority = l.priority order by t.id limit 200) as next
           limit 1000) as t
   cross join lateral (select greatest(t.created_at, t.ready_at, max(greatest(a.finished_at, a.retry_at))) as at
                         from attempts a
                        where a.task_id = t.id
                          and a.stage in ('metadata', 'ingest')) as since))
union all

select 'tasks' as metric, 'assemble' as label1, 'ready' as label2,
       case when few.n < 1000 then few.n
            else greatest(few.n, (select reltuples from pg_class
                                   where oid = to_regclass('tasks_assemble_ready'))) end as value
  from (select count(*)::float8 as n from (select from tasks where assemble_status in ('pending', 'failed')
    and transcode_status = 'completed'
    and metadata_status = 'completed'
    and assemble_run_at is null limit 1000) as few) as few
union all
select 'oldest_ready_seconds', 'assemble', '', extract(epoch from now() - (
  with recursive levels (priority) as (
    (select priority from tasks where assemble_status in ('pending', 'failed')
    and transcode_status = 'completed'
    and metadata_status = 'completed'
    and assemble_run_at is null order by priority, id desc limit 1)
    union all
    select (select t.priority from tasks t where t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
    and t.assemble_run_at is null and t.priority > l.priority
             order by t.priority, t.id desc limit 1)
      from levels l where l.priority is not null
  )
  select min(since.at)
    from (select next.*
            from (select priority from levels where priority is not null limit 50) as l
           cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                where t.assemble_status in ('pending', 'failed')
    and t.transcode_status = 'completed'
    and t.metadata_status = 'completed'
    and t.assemble_run_at is null and t.priority = l.priority order by t.id limit 200) as next
           limit 1000) as t
   cross join lateral (select greatest(t.created_at, t.ready_at, max(greatest(a.finished_at, a.retry_at))) as at
                         from attempts a
                        where a.task_id = t.id
                          and a.stage in ('assemble', 'transcode', 'metadata')) as since))
union all

select 'tasks' as metric, 'publish' as label1, 'ready' as label2,
       case when few.n < 1000 then few.n
            else greatest(few.n, (select reltuples from pg_class
                                   where oid = to_regclass('tasks_publish_ready'))) end as value
  from (select count(*)::float8 as n from (select from tasks where publish_status in ('pending', 'failed')
    and assemble_status = 'completed'
    and publish_run_at is null limit 1000) as few) as few
union all
select 'oldest_ready_seconds', 'publish', '', extract(epoch from now() - (
  with recursive levels (priority) as (
    (select priority from tasks where publish_status in ('pending', 'failed')
    and assemble_status = 'completed'
    and publish_run_at is null order by priority, id desc limit 1)
    union all
    select (select t.priority from tasks t where t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
    and t.publish_run_at is null and t.priority > l.priority
             order by t.priority, t.id desc limit 1)
      from levels l where l.priority is not null
  )
  select min(since.at)
    from (select next.*
            from (select priority from levels where priority is not null limit 50) as l
           cross join lateral (select t.id, t.created_at, t.ready_at from tasks t
                                where t.publish_status in ('pending', 'failed')
    and t.assemble_status = 'completed'
    and t.publish_run_at is null and t.priority = l.priority order by t.id limit 200) as next
           limit 1000) as t
   cross join lateral (select greatest(t.created_at, t.ready_at, max(greatest(a.finished_at, a.retry_at))) as at
                         from attempts a
                        where a.task_id = t.id
                          and a.stage in ('publish', 'assemble')) as since))
union all
select 'tasks', k.name, 'inprogress', count(*) filter (where k.status = 'inprogress')
  from (select * from tasks where ingest_status = 'inprogress'
     or transcode_status = 'inprogress'
     or metadata_status = 'inprogress'
     or assemble_status = 'inprogress'
     or publish_status = 'inprogress' limit 1000) as t
 cross join lateral (values 
       ('ingest', t.ingest_status), 
       ('transcode', t.transcode_status), 
       ('metadata', t.metadata_status), 
       ('assemble', t.assemble_status), 
       ('publish', t.publish_status)) as k (name, status)
 group by k.name
union all
select 'tasks', k.name, 'retrying', count(k.run_at)
  from ((select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 0 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'failed' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 1 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'failed' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 2 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'failed' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 1 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'completed' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 2 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'completed' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 1 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'inprogress' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 2 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'inprogress' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 2 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'pending' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000) union all
        (select * from tasks where (case when coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is null then 0
        when greatest(ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts,
           publish_attempts) = 0
        and ready_at is null then 1 else 2 end) = 2 and greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) = 'divided' and (least(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'completed'
    or greatest(ingest_status, transcode_status, metadata_status, assemble_status, publish_status) >= 'failed'
    or coalesce(ingest_run_at, transcode_run_at, metadata_run_at, assemble_run_at, publish_run_at) is not null) limit 1000)) as t
 cross join lateral (values 
       ('ingest', t.ingest_run_at), 
       ('transcode', t.transcode_run_at), 
       ('metadata', t.metadata_run_at), 
       ('assemble', t.assemble_run_at), 
       ('publish', t.publish_run_at)) as k (name, run_at)
 group by k.name
union all
select k.metric, k.name, k.label2, count(*) filter (where k.status = 'dead')
  from (select * from tasks where (ingest_status = 'dead'
     or transcode_status = 'dead'
     or metadata_status = 'dead'
     or assemble_status = 'dead'
     or publish_status = 'dead') and overridden_by is null limit 1000) as t
 cross join lateral (values ('tasks', 'ingest', 'dead', t.ingest_status), ('tasks', 'transcode', 'dead', t.transcode_status), ('tasks', 'metadata', 'dead', t.metadata_status), ('tasks', 'assemble', 'dead', t.assemble_status), ('tasks', 'publish', 'dead', t.publish_status), 
       ('dead_tasks', '', '', 'dead'::cuelight_status)) as k (metric, name, label2, status)
 group by k.metric, k.name, k.label2
union all
select 'stage_paused', s.name, '', 1
  from cuelight_pauses as p
  join (values ('ingest'), ('transcode'), ('metadata'), ('assemble'), ('publish')) as s (name) on p.stage in ('', s.name)
 where p.pipeline = 'video' and p.host = ''
union all
select k.metric, k.label, '', sum(k.value)
  from (select distinct on (worker) worker, age, state
          from (select name || ':' || pid as worker, extract(epoch from now() - heartbeat_at) as age,
                       case when now() - heartbeat_at > least(lease / 5, interval '7 s') then 'silent'
                            when drain_at is not null then 'draining'
                            when running <> '[]' then 'busy'
                            else 'idle' end as state
                  from workers where pipeline = 'video' and stopped_at is null and lost_at is null) as w
         order by worker, age desc) as each
 cross join lateral (values ('worker_heartbeat_age_seconds', worker, age), ('workers', state, 1)) as k (metric, label, value)
 group by k.metric, k.label
union all
select k.metric, '', '', k.value
  from (select min(cursor) >> 16 as seen from cuelight_webhooks
         where pipeline = 'video' and disabled_at is null) as c
 cross join lateral (values
       ('outbox_pending',
        (select count(*) from (select from outbox where id > c.seen limit 1000) as few)::float8),
       ('outbox_oldest_seconds',
        (select extract(epoch from now() - at) from outbox where id > c.seen order by id limit 1))) as k (metric, value)
union all
select 'outbox_age_seconds', '', '', (select extract(epoch from now() - at) from outbox order by id limit 1)
union all
select 'outbox_held_seconds', '', '',
       case when c.watermark is not null
            then coalesce((select extract(epoch from clock_timestamp() - at) from outbox
                            where id > c.watermark order by id limit 1), 0) end
  from (select case when current_setting('transaction_isolation') like 'read %' and not pg_is_in_recovery()
                    then cuelight_event_watermark('outbox_id') end as watermark offset 0) as c
union all
select k.metric, k.label, '', k.value
  from (select count(*) filter (where w.disabled_at is null)::float8 as enabled,
               count(*) filter (where w.disabled_at is not null)::float8 as disabled,
               sum(p.pending)::float8 as pending, max(p.oldest) as oldest, sum(d.dead)::float8 as dead
          from cuelight_webhooks w
         left join lateral (
               select count(*) as pending, extract(epoch from now() - min(created_at))::float8 as oldest
                 from (select created_at from cuelight_deliveries
                        where webhook_id = w.id and status = 'pending'
                        order by run_at, event_id limit 1000) as few) as p on w.disabled_at is null
         left join lateral (
               select count(*) as dead
                 from (select from cuelight_deliveries
                        where webhook_id = w.id and status = 'dead'
                        order by id limit 1000) as few) as d on w.disabled_at is null
         where w.pipeline = 'video') as w
 cross join lateral (values ('webhooks', 'enabled', w.enabled), ('webhooks', 'disabled', w.disabled),
                            ('webhook_pending', '', w.pending),
                            ('webhook_oldest_seconds', '', w.oldest), ('webhook_dead', '', w.dead)) as k (metric, label, value);

/* raise alert */
insert into outbox (type, data)
select $2, $1::jsonb || jsonb_build_object('name', $3::text)
 where exists (select from cuelight_webhooks where pipeline = $4 and disabled_at is null);

/* claim deliveries */
select d.id, d.webhook_id, h.url,
       array_remove(array[h.secret, case when h.old_until > now() then h.old_secret end], null),
       d.type, d.payload, d.attempts
  from unnest($1::uuid[], $2::int[]) as w (id, free)
  join cuelight_webhooks h on h.id = w.id and h.disabled_at is null
 cross join lateral (
       select due.*, row_number() over (order by due.run_at, due.event_id) as rank
         from (select d.id, d.webhook_id, d.type, d.payload, d.attempts, d.run_at, d.event_id
                 from cuelight_deliveries d
                where d.webhook_id = w.id and d.status = 'pending' and d.run_at <= now()
                  and d.id <> all ($3::uuid[])
                  and not exists (select from cuelight_deliveries e
                                   where e.webhook_id = d.webhook_id and e.task_id = d.task_id
                                     and e.status = 'pending' and e.event_id < d.event_id)
                order by d.run_at, d.event_id
                limit w.free) as due) as d
 order by d.rank, random()
 limit $4;

/* delete finished deliveries */
delete from cuelight_deliveries
 where finished_at is not null and id = any (array(
       select d.id from cuelight_deliveries d
        where d.status = '%s' and d.finished_at < now() - make_interval(secs => $2)
          and exists (select from cuelight_webhooks w where w.id = d.webhook_id and w.pipeline = $1)
        order by d.finished_at
        limit $3));

/* delete cooldowns */
delete from cuelight_alert_cooldowns
 where until < now() - interval '30 days'
   and webhook_id in (select id from cuelight_webhooks where pipeline = $1);

/* read cooldowns */
select webhook_id, subject, until, suppressed from cuelight_alert_cooldowns where webhook_id = any($1::uuid[]);

/* list deliveries */
select d.id, d.webhook_id, d.event_id, d.type, d.task_id, d.status, d.created_at, d.attempts, d.run_at, d.finished_at,
       coalesce(d.response, 0), d.error, d.payload
  from cuelight_deliveries d
 where d.webhook_id = $1
 order by d.id desc
 limit $2;

/* redeliver */
update cuelight_deliveries
   set status = 'pending', attempts = 0, run_at = now(), finished_at = null, response = null, error = ''

 where id = $1 and status <> 'pending'
   and webhook_id in (select id from cuelight_webhooks where pipeline = $2)
returning id;

/* find delivery */
select d.id from cuelight_deliveries d join cuelight_webhooks w on w.id = d.webhook_id
 where d.id = $1 and w.pipeline = $2;

/* redeliver dead */
update cuelight_deliveries
   set status = 'pending', attempts = 0, run_at = now(), finished_at = null, response = null, error = ''

 where webhook_id in (select id from cuelight_webhooks where id = $1 and pipeline = $2) and status = 'dead';

/* find webhook */
select url, array_remove(array[secret, case when old_until > now() then old_secret end], null)
  from cuelight_webhooks where id = $1 and pipeline = $2;

/* read failing webhooks */
select w.id from cuelight_webhooks w
 where w.pipeline = $1 and w.disabled_at is null
   and exists (select from cuelight_deliveries d
                where d.webhook_id = w.id and d.status = 'pending' and d.run_at > now());

/* acquire lease */
insert into cuelight_leases as l (name, holder, until)
select $1, $2, now() + make_interval(secs => $3)
 where not exists (select from cuelight_leases where name = $1 and holder <> $2 and until > now())
on conflict (name) do update set holder = excluded.holder, until = excluded.until
 where l.holder = excluded.holder or l.until <= now()
returning true;

/* renew lease */
update cuelight_leases set until = now() + make_interval(secs => $3) where name = $1 and holder = $2 returning true;

/* release lease */
delete from cuelight_leases where name = $1 and holder = $2;

/* read webhooks */
select id, url, types, extract(epoch from cooldown)::float8, cursor
  from cuelight_webhooks where pipeline = $1 and disabled_at is null order by id;

/* add webhook */
insert into cuelight_webhooks as w (pipeline, url, types, secret, cooldown, cursor)
values ($1, $2, $3, $4, coalesce(make_interval(secs => $5), '300 s'), $6)
returning 
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead);

/* change webhook */
update cuelight_webhooks w
   set url = coalesce(nullif($3, ''), url), types = coalesce($4, types),
       cooldown = coalesce(make_interval(secs => $5), cooldown)
 where id = $1 and pipeline = $2
returning 
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead);

/* list webhooks */
select 
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead)
  from cuelight_webhooks w where pipeline = $1 order by id;

/* rotate webhook secret */
update cuelight_webhooks w
   set secret = $3, old_secret = secret, old_until = now() + make_interval(secs => $4)
 where id = $1 and pipeline = $2
returning 
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead);

/* disable webhook */
update cuelight_webhooks w
   set disabled_at = coalesce(disabled_at, now()),
       disabled_reason = case when disabled_at is null then $3 else disabled_reason end
 where id = $1 and pipeline = $2
returning 
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead);

/* enable webhook */
update cuelight_webhooks w set disabled_at = null, disabled_reason = ''
 where id = $1 and pipeline = $2
returning 
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead);

/* remove webhook */
delete from cuelight_webhooks w where id = $1 and pipeline = $2
returning 
id, url, types, secret, case when old_until > now() then old_until end, extract(epoch from cooldown)::int,
       created_at, disabled_at, disabled_reason,
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' limit 100000) as pending),
       (select count(*) from (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'dead' limit 100000) as dead);

/* retry deliveries now */
update cuelight_deliveries set run_at = now() where webhook_id = $1 and status = 'pending' and run_at > now();

/* is there a webhook */
select exists (select from cuelight_webhooks where pipeline = $1 and disabled_at is null);

/* lock webhooks */
select id, cursor, types from cuelight_webhooks where id = any($1::uuid[]) order by id for no key update;

/* write deliveries */
with moved as (
  update cuelight_webhooks set cursor = $2 where id = $1
)
insert into cuelight_deliveries (webhook_id, event_id, type, task_id, payload, run_at, status, finished_at)
select $1, e.event_id, e.type, e.task_id, e.payload,
       greatest(now(), (select max(p.run_at) from cuelight_deliveries p
                         where p.webhook_id = $1 and p.task_id = e.task_id and p.status = 'pending')),
       case when e.suppressed then 'suppressed' else 'pending' end,
       case when e.suppressed then now() end
  from unnest($3::bigint[], $4::text[], $5::uuid[], $6::text[], $7::bool[])
       as e (event_id, type, task_id, payload, suppressed)
 order by e.event_id
on conflict (webhook_id, event_id, type) do nothing;

/* delete outdated progress */
delete from cuelight_deliveries d using unnest($2::uuid[], $3::text[]) as new (task_id, stage)
 where d.webhook_id = $1 and d.task_id = new.task_id and d.status = 'pending' and d.type = 'progress' and d.attempts = 0
   and d.id <> all ($4::uuid[]) and d.payload::json #>> '{data,stage}' = new.stage;

/* write cooldown */
insert into cuelight_alert_cooldowns (webhook_id, subject, until, suppressed) values ($1, $2, $3, $4)
on conflict (webhook_id, subject) do update set until = excluded.until, suppressed = excluded.suppressed;

/* finish delivery */
with this as (
  update cuelight_deliveries
     set attempts = attempts + 1, status = $3, response = nullif($5, 0), error = $6,
         run_at = case when $3 <> 'pending' then run_at
                       when exists (select from cuelight_webhooks where id = webhook_id and url = $7)
                       then now() + make_interval(secs => $4)
                       else now() end,
         finished_at = case when $3 <> 'pending' then now() end
   where id = $1 and attempts = $2 and status = 'pending'
  returning id, webhook_id, task_id, event_id, run_at, status
), next as (
  select this.*, case when this.status = 'pending' then this.run_at end as wait_for from this
)
update cuelight_deliveries d
   set run_at = coalesce(next.wait_for, now())
  from next
 where d.webhook_id = next.webhook_id and d.task_id = next.task_id
   and d.status = 'pending' and d.event_id > next.event_id
   and case when next.wait_for is null then d.run_at > now() else d.run_at < next.wait_for end;

/* disable webhook that is gone */
update cuelight_webhooks set disabled_at = now(), disabled_reason = $2 where id = $1 and url = $3 and disabled_at is null;

/* retry after outage */
update cuelight_deliveries set run_at = now()
 where webhook_id = $1 and status = 'pending' and run_at > now()
   and (attempts = 0 or response is null or response between 502 and 504
        or attempts < 6 and (response >= 500 or response in (408, 425, 429)));

/* create key */
insert into cuelight_keys (name, scope, prefix, digest) values ($1, $2, $3, $4)
    on conflict (prefix) do nothing
returning id, created_at;

/* list keys */
select id, name, scope, prefix, digest, created_at, used_at, disabled_at, enabled_at, revoked_at from cuelight_keys order by id;

/* find key */
select id, name, scope, prefix, digest, created_at, used_at, disabled_at, enabled_at, revoked_at from cuelight_keys where prefix = $1;

/* lock key */
select id, name, scope, prefix, digest, created_at, used_at, disabled_at, enabled_at, revoked_at from cuelight_keys where prefix = $1 for no key update;

/* use key */
update cuelight_keys set used_at = now()
 where id = (select id from cuelight_keys
              where id = $1 and (used_at is null
                or used_at < now() - interval '1 minute') for no key update skip locked);

/* revoke key */
update cuelight_keys set revoked_at = coalesce(revoked_at, now()) where id = $1
returning id, name, scope, prefix, digest, created_at, used_at, disabled_at, enabled_at, revoked_at;

/* disable key */
update cuelight_keys set disabled_at = case when revoked_at is null then coalesce(disabled_at, now()) else disabled_at end
 where id = $1
returning id, name, scope, prefix, digest, created_at, used_at, disabled_at, enabled_at, revoked_at;

/* enable key */
update cuelight_keys set disabled_at = case when revoked_at is not null then disabled_at end,
       enabled_at = case when revoked_at is null and disabled_at is not null then now() else enabled_at end
 where id = $1
returning id, name, scope, prefix, digest, created_at, used_at, disabled_at, enabled_at, revoked_at;

/* recorded location */
select id, address, host from cuelight_locations where pipeline = $1 and kind = $2;

/* record a location */
insert into cuelight_locations as l (pipeline, kind, id, address, host)
values ($1, $2, $3, $4, $5)
on conflict (pipeline, kind) do update
   set id = excluded.id, address = excluded.address, host = excluded.host, recorded_at = now()
 where l.id in (excluded.id, $6);
