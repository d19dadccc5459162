// What every app finds before its own lines: how it talks with the program that
// has started it.
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const input = createInterface({ input: process.stdin, crlfDelay: Infinity });
const hostEnd = new Promise((resolve) => input.once("close", resolve));
process.stdout.on("error", () => process.exit(1));

let unsaid = "";

// Lines of one turn of the event loop go out together.
function say(value) {
  if (unsaid === "") setImmediate(flush);
  unsaid += JSON.stringify(value) + "\n";
}

function flush() {
  const text = unsaid;
  unsaid = "";
  if (text !== "") process.stdout.write(text);
}

const stageNames = ["ingest", "transcode", "metadata", "assemble", "publish"];
const [BEGAN, ENDED, COMPLETED] = [0, 1, 2];

// doWork takes a stage of a task on, completed tells that it is done.
async function doWork(task, stage) {
  say([BEGAN, task, stage]);
  if (config.workMs > 0) await pause(config.workMs);
  say([ENDED, task, stage]);
}

function completed(task, stage) {
  say([COMPLETED, task, stage]);
}

function ready() {
  say({ ready: true });
}

// leave is for the end: a pool of connections would keep the process for seconds.
function leave() {
  flush();
  process.exit(0);
}

function trouble(what) {
  say({ trouble: String(what?.stack ?? what) });
}

// onRequest is what does the requests; hostEnd tells that there will be no more.
let onRequest = async () => {};
const requests = new Set();

async function answer(request) {
  let error = "";
  try {
    await onRequest(request);
  } catch (e) {
    error = String(e?.message ?? e);
  }
  say({ reply: request.request, error });
}

const config = await new Promise((resolve) => {
  let first = true;
  input.on("line", (line) => {
    if (first) {
      first = false;
      resolve(JSON.parse(line));
      return;
    }
    const one = answer(JSON.parse(line)).finally(() => requests.delete(one));
    requests.add(one);
  });
});
