// Every app's script follows this text: it connects the script with the program that
// started it.
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const input = createInterface({ input: process.stdin, crlfDelay: Infinity });
const inputEnd = new Promise((resolve) => input.once("close", resolve));
process.stdout.on("error", () => process.exit(1));

let unsent = "";

// send writes a value as a line. Lines of one turn of the event loop are written together.
function send(value) {
  if (unsent === "") setImmediate(flush);
  unsent += JSON.stringify(value) + "\n";
}

function flush() {
  const text = unsent;
  unsent = "";
  if (text !== "") process.stdout.write(text);
}

const stageNames = ["ingest", "transcode", "metadata", "assemble", "publish"];
const [STARTED, ENDED, COMPLETED] = [0, 1, 2];

// doWork performs a stage of a task.
async function doWork(task, stage) {
  send([STARTED, task, stage]);
  if (config.workMs > 0) await pause(config.workMs);
  send([ENDED, task, stage]);
}

function reportCompleted(task, stage) {
  send([COMPLETED, task, stage]);
}

function reportReady() {
  send({ ready: true });
}

function reportFailure(error) {
  send({ failure: String(error?.stack ?? error) });
}

// exit ends the process at once: a pool of connections would keep it for seconds.
function exit() {
  flush();
  process.exit(0);
}

// onRequest handles requests. A script sets it.
let onRequest = async () => {};

async function answer(request) {
  let error = "";
  try {
    await onRequest(request);
  } catch (e) {
    error = String(e?.message ?? e);
  }
  send({ reply: request.request, error });
}

const config = await new Promise((resolve) => {
  let first = true;
  input.on("line", (line) => {
    if (first) {
      first = false;
      resolve(JSON.parse(line));
      return;
    }
    answer(JSON.parse(line));
  });
});
