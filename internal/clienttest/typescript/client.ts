// Uses the generated client as a user's program would. It fails if a response of the server
// does not fit the types, and prints the id of the task.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

const [, , baseUrl, key, source] = process.argv;
if (!baseUrl || !key || !source) throw new Error("usage: client URL KEY SOURCE");

const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

function must<T>(what: string, got: { data?: T; error?: unknown }): T {
  if (got.data === undefined) throw new Error(`${what}: ${JSON.stringify(got.error)}`);
  return got.data;
}

function check(what: string, holds: boolean): void {
  if (!holds) throw new Error(what);
}

// Priority and params are optional, and params may have members of the client in custom.
const minimal: components["schemas"]["Submission"] = { source };
const submitted = must("submit", await client.POST("/api/v1/tasks", { body: { ...minimal, params: { title: "A title", custom: { tags: ["a", "b"] } } } }));
if (!("task_id" in submitted)) throw new Error("the response to one submission is a list");
const id = submitted.task_id;

const listed = must("list", await client.GET("/api/v1/tasks", { params: { query: { source, limit: 10 } } }));
check("the task is not listed", listed.tasks.some((t) => t.task_id === id));

const shown = must("show", await client.GET("/api/v1/tasks/{id}", { params: { path: { id } } }));
check("the title was lost", shown.params["title"] === "A title");
check("there are no stages", shown.stages.length > 0 && shown.stages[0]?.stage === "ingest");

const page = must("events", await client.GET("/api/v1/events", { params: { query: { after: 0 } } }));
if (typeof page === "string") throw new Error("the response with events is a stream");
const types: components["schemas"]["Event"]["type"][] = page.events.map((e) => e.type);
check("no event records the submission", types.includes("submitted"));
const host: unknown = page.events.find((e) => e.type === "worker_started")?.data?.["host"];
check("the data of an event was lost", host === "studio");

const refused = await client.GET("/api/v1/tasks/{id}", { params: { path: { id: "00000000-0000-7000-8000-000000000000" } } });
check("a problem has no type", refused.error?.type === "urn:cuelight:problem:not-found");

console.log(id);
