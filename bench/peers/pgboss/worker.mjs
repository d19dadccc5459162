import { PgBoss } from "pg-boss";

const [INGEST, TRANSCODE, METADATA, ASSEMBLE, PUBLISH] = stageNames.keys();

const boss = new PgBoss({ connectionString: config.url, max: 20, useListenNotify: true });
boss.on("error", reportFailure);

// The second of the two stages starts assemble. Rows are locked in the order of tasks, so
// that two batches with the same tasks cannot deadlock.
const arriveSQL = `insert into arrivals as a (task, done)
select task, $2 from unnest($1::bigint[]) task order by task
on conflict (task) do update set done = a.done | excluded.done
returning task, done`;

const insertJobs = (stage, tasks) => boss.insert(stageNames[stage], tasks.map((task) => ({ data: { task } })));

// advance starts the next stages of a batch.
async function advance(stage, tasks) {
  switch (stage) {
    case INGEST:
      await Promise.all([insertJobs(TRANSCODE, tasks), insertJobs(METADATA, tasks)]);
      break;
    case TRANSCODE:
    case METADATA: {
      const { rows } = await boss.getDb().executeSql(arriveSQL, [tasks, 1 << stage]);
      const both = (1 << TRANSCODE) | (1 << METADATA);
      const next = rows.filter((row) => row.done === both).map((row) => Number(row.task));
      if (next.length > 0) await insertJobs(ASSEMBLE, next);
      break;
    }
    case ASSEMBLE:
      await insertJobs(PUBLISH, tasks);
  }
}

const handler = (stage) => async (jobs) => {
  const tasks = jobs.map((job) => job.data.task);
  await Promise.all(tasks.map((task) => doWork(task, stage)));
  await advance(stage, tasks);
  for (const task of tasks) reportCompleted(task, stage);
};

onRequest = ({ first, n }) => insertJobs(INGEST, Array.from({ length: n }, (_, i) => first + i));

await boss.start();
if (config.do === "setup") {
  for (const name of stageNames) await boss.createQueue(name, { notify: true, partition: true });
  await boss.getDb().executeSql(
    "create table arrivals (task bigint primary key, done int not null) with (fillfactor = 80)",
  );
} else if (config.do === "work") {
  const options = {
    batchSize: config.slots,
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
  };
  for (const [stage, name] of stageNames.entries()) await boss.work(name, options, handler(stage));
}
reportReady();
await inputEnd;
await boss.stop({ graceful: true });
exit();
