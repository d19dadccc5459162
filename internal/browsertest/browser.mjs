// What all scripts share: a browser, what the test gave, and a way to say what was
// found. A script calls test for each thing that it does, and ends with done.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
const require = createRequire(join(process.env.CUELIGHT_NODE_MODULES, "package.json"));
const { chromium } = require("playwright-core"), axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const given = JSON.parse(process.argv[2]);
export const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--autoplay-policy=no-user-gesture-required", "--mute-audio"] });
let failed = 0;

// control asks the test to do what a page cannot.
export async function control(what, form = {}) {
  const answer = await fetch(`${given.control}/test/${what}`, { method: "POST", body: new URLSearchParams(form) });
  const text = await answer.text();
  must(answer.ok, `${what}: ${text}`);
  return text;
}

export function must(fact, text) { if (!fact) throw new Error(text); }

const trouble = (page) => {
  const found = [];
  page.on("console", (m) => { if (m.type() === "error" && !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|Failed to load resource|htmx:(sse:)?error/.test(m.text())) found.push(m.text()); });
  page.on("pageerror", (e) => found.push(e.message));
  return found;
};

export const connected = (page) => page.waitForSelector('#live-state[data-state="connected"]', { timeout: 15000 });
export const state = (page) => page.getAttribute("#live-state", "data-state");

// sound has axe look at the page: it finds nothing serious.
export async function sound(page, name) {
  await page.evaluate(axe); // as the developer tools do: the policy of the page allows no other way
  const { violations } = await page.evaluate(() => window.axe.run());
  const bad = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  must(!bad.length, `${name}: ${bad.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.any[0]?.message ?? ""}`).join(" | ")}`).join("; ")}`);
  const other = violations.filter((v) => !bad.includes(v)).map((v) => `${v.id} (${v.impact})`);
  if (other.length) console.log(`      ${name}: ${other.join(", ")}`);
}

// narrow says that nothing is wider than the window.
export async function narrow(page, name) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  must(wide <= 0, `${name} is ${wide} px too wide`);
}

// drop lets files fall on the page, as a hand does that drags them from a folder.
export async function drop(page, files) {
  const data = await page.evaluateHandle((files) => {
    const d = new DataTransfer();
    for (const f of files) {
      const bytes = Uint8Array.from(atob(f.base64), (c) => c.charCodeAt(0));
      d.items.add(new File([bytes], f.name, { type: f.type ?? "video/mp4", lastModified: f.modified ?? Date.now() }));
    }
    return d;
  }, files);
  await page.dispatchEvent("body", "dragenter", { dataTransfer: data });
  must(await page.isVisible("#drop"), "nothing says that it can be dropped");
  await page.dispatchEvent("body", "drop", { dataTransfer: data });
  must(!(await page.isVisible("#drop")), "the hint stays");
}

// test does something on a page of its own, and goes on after a failure. What a
// script that failed cannot tell, its picture may.
export async function test(name, run, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage(), found = trouble(page), begun = Date.now();
  try {
    await run(page, context);
    must(!found.length, `the console says: ${found.join("; ")}`);
    console.log(`ok    ${name} (${Date.now() - begun} ms)`);
  } catch (e) {
    failed++;
    console.log(`FAIL  ${name}: ${e.message.split("\n").slice(0, 6).join("\n      ")}${found.length ? `\n      console: ${found.join("; ")}` : ""}`);
    await page.screenshot({ path: `${given.pictures}/failure-${name.replaceAll(/\W+/g, "-")}.png`, fullPage: true }).catch(() => {});
  }
  await context.close();
}

export async function done() {
  await browser.close();
  process.exit(failed ? 1 : 0);
}
