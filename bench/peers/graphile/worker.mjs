import { EventEmitter } from "node:events";
import { Logger, run, runMigrations } from "graphile-worker";

// Its shutdown logs an error when a fetch is running. By then all work is done or cancelled.
let stopping = false;
const logger = new Logger(() => (level, message) => {
  if (level === "error" && !stopping) reportFailure(message);
});

const preset = {
  worker: {
    connectionString: config.url,
    concurrentJobs: config.slots * stageNames.length,
    maxPoolSize: 25,
    localQueue: { size: Math.max(500, config.slots * stageNames.length) },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger,
  },
};

const job = (stage) => `('${stageNames[stage]}', $1, null, null, null, null, null, null)::graphile_worker.job_spec`;
const [INGEST, TRANSCODE, METADATA, ASSEMBLE, PUBLISH] = stageNames.keys();

// The second of the two stages starts assemble, in the same statement.
const join = (stage) => `with arrived as (
  insert into arrivals as a (task, done) values (($1::json->>'task')::bigint, ${1 << stage})
  on conflict (task) do update set done = a.done | excluded.done
  returning done
)
select graphile_worker.add_job('assemble', $1) from arrived where done = ${(1 << TRANSCODE) | (1 << METADATA)}`;

// The statements that start the next stages. A statement is a transaction.
const advance = [];
advance[INGEST] = `select graphile_worker.add_jobs(array[${job(TRANSCODE)}, ${job(METADATA)}])`;
advance[TRANSCODE] = join(TRANSCODE);
advance[METADATA] = join(METADATA);
advance[ASSEMBLE] = `select graphile_worker.add_job('publish', $1)`;

const task = (stage) => async (payload, { withPgClient }) => {
  await doWork(payload.task, stage);
  if (advance[stage]) {
    await withPgClient((client) =>
      client.query({ name: "advance_" + stageNames[stage], text: advance[stage], values: [JSON.stringify({ task: payload.task })] }),
    );
  }
  reportCompleted(payload.task, stage);
};

if (config.do === "setup") {
  await runMigrations({ preset });
  reportReady();
} else {
  const events = new EventEmitter();
  const listening = new Promise((resolve) => events.once("pool:listen:success", resolve));
  const taskList = Object.fromEntries(stageNames.map((name, stage) => [name, task(stage)]));
  const runner = await run({ preset, taskList, events, parsedCronItems: [], noHandleSignals: true });
  runner.promise.catch((error) => logger.error(String(error)));
  await listening;
  reportReady();
  await inputEnd;
  stopping = true;
  await runner.stop();
}
await inputEnd;
exit();
