// Uses the dashboard of a daemon that does the work, as people do: what is submitted
// becomes a video, is watched, fails, is tried again, and goes on after a crash.
import { connected, control, done, drop, given, must, narrow, sound, test } from "../browsertest/browser.mjs";

const signIn = async (page, secret = given.admin, path = "/") => {
  await page.goto(given.url + path);
  await page.fill("#secret", secret);
  await page.click("text=Sign in >> nth=-1");
};
const rowOf = (page, title) => page.locator(".row", { has: page.locator(".name", { hasText: title }) });
const file = async (name) => ({ name, base64: await control("read", { name }) });
const add = async (page, source) => {
  await page.click("text=Add…");
  await page.fill("#dialog >> #source", source);
  await page.click("#dialog >> button[type=submit]");
  await page.waitForSelector("#dialog:not([open])", { state: "attached" });
};
const idOf = async (page, title) => (await rowOf(page, title).first().getAttribute("id")).slice(2);
// chip waits until a stage is in a state, wherever it is drawn.
const chip = (within, stage, state, timeout = 60000) => within.locator(`.chip.s-${state}`, { hasText: stage }).first().waitFor({ timeout });
const still = (page) => page.evaluate(() => { window.here = "here"; });
const stayed = async (page) => must(await page.evaluate(() => window.here) === "here", "the page was loaded again");

await test("a wrong secret is told so, and the right one lets in", async (page) => {
  await signIn(page, "x".repeat(40));
  await page.waitForSelector("text=Unknown secret or API key.");
  await sound(page, "the sign-in");
  await signIn(page);
  await page.waitForSelector("text=No videos yet.");
  await connected(page);
});

await test("what is dropped is uploaded, and becomes a video before one's eyes", async (page, context) => {
  await signIn(page);
  await connected(page);
  await still(page);
  await control("pace", { factor: "2" });
  await page.evaluate(() => { // what was seen, however short it was
    const seen = window.seen = { uploads: new Set(), chips: {}, details: new Set() };
    new MutationObserver(() => {
      const upload = document.querySelector("#uploads .upload");
      if (upload) seen.uploads.add(upload.querySelector(".dim").textContent);
      for (const c of document.querySelectorAll(".row .chip")) {
        const stage = c.querySelector(".chip-name").textContent, states = seen.chips[stage] ??= [], now = [...c.classList].find((n) => n.startsWith("s-")).slice(2);
        if (states.at(-1) !== now) states.push(now);
        if (now === "inprogress" && c.querySelector(".chip-more")) seen.details.add(`${stage} ${c.querySelector(".chip-word").textContent} ${c.querySelector(".chip-more").textContent}`);
      }
    }).observe(document.body, { childList: true, subtree: true, characterData: true, attributes: true });
  });
  const line = await context.newCDPSession(page);
  const film = await file("harbour-morning.mp4");
  await line.send("Network.enable"); // a line that is slow enough to see it
  await line.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: film.base64.length / 3 });
  await drop(page, [film]);
  await page.waitForSelector("#uploads >> text=uploaded");
  await line.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  const row = rowOf(page, "harbour-morning.mp4");
  await row.waitFor();
  await chip(row, "transcode", "inprogress");
  await chip(row, "publish", "completed");
  await row.locator(".state.s-completed").waitFor();
  await row.locator(".thumb img").waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll(".thumb img")].every((i) => i.naturalWidth > 0));
  await stayed(page);
  const seen = await page.evaluate(() => ({ uploads: [...window.seen.uploads], chips: window.seen.chips, details: [...window.seen.details] }));
  const parts = seen.uploads.map((text) => parseInt(text)).filter((n) => n > 0 && n < 100);
  must(parts.length > 1, `of the upload was seen: ${seen.uploads.join(", ")}`);
  must(seen.chips.transcode?.join(" ").endsWith("inprogress completed"), `of the transcode was seen: ${seen.chips.transcode}`);
  must(seen.chips.publish?.at(-1) === "completed", `of the publishing was seen: ${seen.chips.publish}`);
  must(seen.details.some((text) => /^transcode \d+% \d+\.\d\d× · \d:\d\d left/.test(text)), `of its progress was seen: ${seen.details.join(", ")}`);
});

await test("an upload goes on where it was when the page was loaded again", async (page, context) => {
  page.on("dialog", (d) => d.accept()); // asks whether to leave it
  await signIn(page);
  await connected(page);
  const film = { ...await file("harbour-morning.mp4"), name: "in-two-parts.mp4", modified: 1700000000000 };
  const line = await context.newCDPSession(page);
  await line.send("Network.enable");
  const at = (uploadThroughput) => line.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
  await at(film.base64.length / 10);
  await drop(page, [film]);
  await page.waitForFunction(() => parseInt(document.querySelector("#uploads .upload .dim")?.textContent) >= 20);
  await page.reload();
  await connected(page);
  await at(-1);
  const asked = [];
  page.on("response", (r) => { if (/\/uploads/.test(r.url()) && r.ok()) asked.push([r.request().method(), Number(r.headers()["upload-offset"])]); });
  await drop(page, [film]);
  await page.waitForSelector("#uploads >> text=uploaded");
  must(asked.every(([method]) => method !== "POST") && asked.some(([method, offset]) => method === "HEAD" && offset > 0), `what is there already is sent again: ${JSON.stringify(asked)}`);
  await rowOf(page, film.name).locator(".state.s-completed").waitFor({ timeout: 60000 });
});

await test("a published video plays to its end", async (page) => {
  await signIn(page);
  await page.click("text=harbour-morning.mp4");
  await connected(page);
  await page.evaluate(() => {
    const v = document.querySelector("video");
    v.defaultPlaybackRate = 4;
    v.addEventListener("ended", () => { window.ended = v.currentTime; });
  });
  await page.click(".play");
  await page.waitForFunction(() => window.ended, undefined, { timeout: 60000 });
  const [at, duration, width] = await page.evaluate(() => { const v = document.querySelector("video"); return [window.ended, v.duration, v.videoWidth]; });
  must(Math.abs(at - duration) < 0.1 && at > 7.9 && width > 0, `it ended at ${at} of ${duration} s, ${width} px wide`);
});

await test("what fails for good is with the dead letters, and is done when its source was mended", async (page) => {
  await signIn(page);
  await connected(page);
  await still(page);
  await drop(page, [await file("minutes.mp4")]);
  await add(page, `${given.films}/notes.mp4`);
  for (const name of ["minutes.mp4", "notes.mp4"]) await rowOf(page, name).locator(".state.s-dead").waitFor({ timeout: 60000 });
  await stayed(page);
  await page.click("nav >> text=Dead tasks");
  await connected(page);
  must(await page.locator(".group").count() === 1, "they are not in one group");
  must(/2 ×.*ingest.*permanent.*not/s.test(await page.locator(".group header").textContent()), `the group is ${await page.locator(".group header").textContent()}`);
  await control("replace", { name: "notes.mp4", by: "harbour-morning.mp4" });
  await control("pace", { factor: "100" });
  await page.locator("[data-row]", { hasText: "notes.mp4" }).locator("[data-retry]").click();
  await page.waitForSelector("text=Retrying the failed stages.");
  await page.waitForFunction(() => document.querySelector("#dead-head h1").textContent === "1 dead task");
  await page.click("nav >> text=Board");
  await rowOf(page, "notes.mp4").locator(".state.s-completed").waitFor({ timeout: 60000 });
});

await test("a page that is loaded again, and one whose daemon is killed, show the truth", async (page) => {
  await signIn(page);
  await connected(page);
  await control("pace", { factor: "2" });
  await add(page, `${given.films}/night-train.mp4`);
  await rowOf(page, "night-train.mp4").locator(".name").click();
  await connected(page);
  const percent = async () => { // of the transcode: ingest has one, too, for a moment
    const running = page.locator("#stages .chip.s-inprogress:has(.bar)", { hasText: "transcode" });
    await running.waitFor({ timeout: 60000 });
    return parseInt(await running.locator(".chip-word").textContent());
  };
  const before = await percent();
  await page.reload();
  await connected(page);
  must(await percent() >= before, "it went back");
  await still(page);
  await control("kill");
  await page.waitForSelector('#live-state[data-state="stale"]');
  must(/since \d/.test(await page.textContent("#live-since")), "it does not say since when");
  await control("pace", { factor: "100" });
  await control("start");
  await connected(page);
  await page.waitForSelector("#attempts .a-expired");
  await chip(page, "transcode", "completed");
  await page.waitForSelector("#head .state.s-completed", { timeout: 60000 });
  await stayed(page);
  must(/attempt 2/.test(await page.locator("#stages .chip", { hasText: "transcode" }).textContent()), "it does not say that it was the second try");
  must(await page.locator("text=Retry from…").count() === 1, "they are not signed in any more");
});

await test("a video is replaced by another source", async (page) => {
  await signIn(page, given.admin, "/dead");
  await page.locator("[data-open]", { hasText: "minutes.mp4" }).click();
  await connected(page);
  const old = page.url();
  await page.click("text=Replace…");
  await sound(page, "the question");
  await page.fill("#dialog >> #source", `${given.films}/harbour-morning.mp4`);
  await page.click("#dialog >> button[type=submit]");
  await page.waitForSelector("#head >> text=Replaced by");
  await page.locator("#head .note a").click();
  await page.waitForURL((u) => u.href !== old);
  await page.waitForSelector("#head >> text=Replaces");
  await page.waitForSelector("#head .state.s-completed", { timeout: 60000 });
});

// From here on there is one of each kind: of each state, and one that was replaced.
let videos = [];
await test("one of each kind", async (page) => {
  await signIn(page);
  await connected(page);
  await control("pace", { factor: "0.05" }); // so that they run for as long as all that follows takes
  await add(page, `${given.films}/night-train.mp4`);
  await add(page, "http://127.0.0.1:9/unreachable-for-now.mp4");
  await drop(page, [await file("minutes.mp4")]);
  await page.waitForSelector(".row.s-inprogress .chip.s-inprogress:has(.bar)", { timeout: 60000 });
  await page.waitForSelector(".row.s-failed");
  await page.waitForSelector(".row.s-dead");
  await add(page, `${given.films}/is-not-there.mp4`);
  await add(page, `${given.films}/night-train.mp4`);
  await page.waitForSelector(".row .chip.s-pending >> text=transcode"); // there is one at a time
  for (const count of ["1 running", "1 ready", "1 retrying", "2 dead", "1 worker"]) await page.waitForSelector(`#overview .number >> text=/^\\s*${count}/`);
  // The one that failed is tried again now and then, and is dead in the end.
  videos = await (await page.waitForFunction(() => {
    const rows = document.querySelectorAll(".row.s-inprogress, .row.s-dead, .row.s-failed, .row.s-completed");
    const kinds = new Map([...rows].map((r) => [r.className, `/videos/${r.id.slice(2)}`]));
    return kinds.size === 5 && [...kinds.values()];
  })).jsonValue();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    await test(`nobody is shut out, ${colorScheme}, ${width} px`, async (page) => {
      await signIn(page);
      await connected(page);
      for (const path of ["/", ...videos, "/workers?gone", "/dead", "/latency"]) {
        await page.goto(given.url + path);
        await connected(page);
        await narrow(page, path);
        await page.screenshot({ path: `${given.pictures}/real${path.replace(/\/videos\/.*-/, "-video-").replace(/\W/g, "-")}-${colorScheme}-${width}.png`, fullPage: true });
        await sound(page, path);
      }
    }, { colorScheme, viewport: { width, height: width > 500 ? 860 : 740 } });
  }
}

await test("keys move through the rows, search, and try again", async (page) => {
  await signIn(page);
  await connected(page);
  const at = () => page.evaluate(() => document.activeElement.closest(".row")?.id);
  const ids = await page.$$eval(".row", (rows) => rows.map((r) => r.id));
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  must(await at() === ids[1], "j does not go to the second row");
  await page.keyboard.press("k");
  must(await at() === ids[0], "k does not go back");
  await page.keyboard.press("/");
  await page.keyboard.type("minutes");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/?q=minutes*");
  await page.waitForSelector(".row");
  await connected(page);
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("?");
  must(await page.isVisible("#help"), "? does not help");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("r");
  await page.waitForSelector("text=Retrying the failed stages.");
  await page.waitForSelector(".row.s-dead"); // it fails again
});

await test("who may only look sees no buttons, and cannot act by other ways", async (page) => {
  await signIn(page, given.reader);
  await connected(page);
  const id = await idOf(page, "night-train.mp4");
  for (const path of ["/", `/videos/${id}`, "/workers", "/dead", "/latency"]) {
    await page.goto(given.url + path);
    await connected(page);
    must(!(await page.locator("main :is(button[type=submit], [data-post], [data-dialog], [data-upload])").filter({ hasNotText: "Apply" }).count()), `there are buttons on ${path}`);
  }
  for (const path of [`/videos/${id}/cancel`, `/videos/${id}/retry`, `/videos/${id}/override`, "/dead/retry", "/pause", "/add", `/api/v1/tasks/${id}/cancel`]) {
    const status = await page.evaluate(async (path) => (await fetch(path, { method: "POST", body: new URLSearchParams({ source: "/etc/hosts", all: "1" }) })).status, path);
    must(status === 403, `a forged POST of ${path} is answered with ${status}`);
  }
  await page.click("text=Sign out");
  await page.waitForSelector("#secret");
  await page.goto(`${given.url}/workers`);
  await page.waitForSelector("#secret");
});

await test("who may submit can add what is not on the host, and nothing else", async (page) => {
  await signIn(page, given.submitter);
  await connected(page);
  must(!(await page.locator("[data-retry]").count()), "they are offered to try again");
  await page.click("text=Add…");
  await page.fill("#dialog >> #source", "/etc/hosts");
  await page.click("#dialog >> button[type=submit]");
  await page.waitForSelector("#messages >> text=/You do not have permission.*upload yours/");
  await page.fill("#dialog >> #source", "http://127.0.0.1:9/from-a-camera.mp4");
  await page.click("#dialog >> button[type=submit]");
  await rowOf(page, "from-a-camera.mp4").waitFor();
});

await test("a running one is cancelled after a question", async (page) => {
  await signIn(page);
  await connected(page);
  const row = page.locator(".row.s-inprogress").first();
  await row.locator(".name").click();
  await page.click("text=Cancel…");
  await sound(page, "the question");
  await page.click("#dialog >> text=Cancel this video");
  await page.waitForSelector("#head .state.s-cancelled");
});

await test("it can be read, and tried again, without scripts", async (page) => {
  await signIn(page);
  must(await page.locator(".row").count() >= 5, "there are no rows");
  must(/completed/.test(await rowOf(page, "harbour-morning.mp4").first().textContent()), "it is not said what is done");
  await page.locator(".row.s-dead .name").first().click();
  must((await page.textContent("#attempts")).includes("failed"), "no attempts are told of");
  await page.click("#head >> button >> text=Retry");
  await page.waitForSelector(".messages >> text=Retrying the failed stages.");
  await page.goto(`${given.url}/dead`);
  must(await page.locator("#dead-head").count() === 1, "there are no dead letters");
}, { javaScriptEnabled: false });

await done();
