// The part that all scripts share: a browser, the input of the Go test, and the output of
// results. A script calls test for each of its tests, and ends with done.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
const require = createRequire(join(process.env.CUELIGHT_NODE_MODULES, "package.json"));
const { chromium } = require("playwright-core"), axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const given = JSON.parse(process.argv[2]);
export const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--autoplay-policy=no-user-gesture-required", "--mute-audio"] });
let failed = 0;

// control runs an action of the Go test that a page cannot do; see Control.
export async function control(action, form = {}) {
  const response = await fetch(`${given.control}/test/${action}`, { method: "POST", body: new URLSearchParams(form) });
  const text = await response.text();
  must(response.ok, `${action}: ${text}`);
  return text;
}

export function must(condition, text) { if (!condition) throw new Error(text); }

// consoleErrors returns a list to which the page's errors are added.
const consoleErrors = (page) => {
  const found = [];
  page.on("console", (m) => { if (m.type() === "error" && !/ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|Failed to load resource|htmx:(sse:)?error/.test(m.text())) found.push(m.text()); });
  page.on("pageerror", (e) => found.push(e.message));
  return found;
};

export const connected = (page) => page.waitForSelector('#live-state[data-state="connected"]', { timeout: 15000 });
export const state = (page) => page.getAttribute("#live-state", "data-state");

// checkAccessibility fails if axe finds a serious problem on the page.
export async function checkAccessibility(page, name) {
  await page.evaluate(axe); // evaluate is exempt from the page's content security policy
  const { violations } = await page.evaluate(() => window.axe.run());
  const bad = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  must(!bad.length, `${name}: ${bad.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.any[0]?.message ?? ""}`).join(" | ")}`).join("; ")}`);
  const other = violations.filter((v) => !bad.includes(v)).map((v) => `${v.id} (${v.impact})`);
  if (other.length) console.log(`      ${name}: ${other.join(", ")}`);
}

// checkWidth fails if the page is wider than the window.
export async function checkWidth(page, name) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  must(excess <= 0, `${name} is ${excess} px too wide`);
}

// drop drops files on the page, as a user does who drags them from a folder.
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
  must(await page.isVisible("#drop"), "the page does not show that files can be dropped");
  await page.dispatchEvent("body", "drop", { dataTransfer: data });
  must(!(await page.isVisible("#drop")), "the page still shows that files can be dropped");
}

// test runs a test on its own page. After a failure it takes a screenshot, and the script
// continues.
export async function test(name, run, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage(), found = consoleErrors(page), started = Date.now();
  try {
    await run(page, context);
    must(!found.length, `errors in the console: ${found.join("; ")}`);
    console.log(`ok    ${name} (${Date.now() - started} ms)`);
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
