// Uses the dashboard of a real daemon as a user does: videos are uploaded, published,
// played, retried, cancelled and replaced, and the page survives a crash of the daemon.
import { checkAccessibility, checkWidth, connected, control, done, drop, given, must, test } from "../browsertest/browser.mjs";

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
// chip waits until the chip of a stage has a state.
const chip = (within, stage, state, timeout = 60000) => within.locator(`.chip.s-${state}`, { hasText: stage }).first().waitFor({ timeout });
// mark marks the page; checkMark fails if it was reloaded since.
const mark = (page) => page.evaluate(() => { window.mark = "mark"; });
const checkMark = async (page) => must(await page.evaluate(() => window.mark) === "mark", "the page was reloaded");

await test("sign-in refuses a wrong secret and accepts the right one", async (page) => {
  await signIn(page, "x".repeat(40));
  await page.waitForSelector("text=Unknown secret or API key.");
  await checkAccessibility(page, "the sign-in");
  await signIn(page);
  await page.waitForSelector("text=No videos yet.");
  await connected(page);
});

await test("a dropped file is uploaded and published while the page is open", async (page, context) => {
  await signIn(page);
  await connected(page);
  await mark(page);
  await control("speed", { factor: "2" });
  await page.evaluate(() => { // records all states, even short ones
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
  const cdp = await context.newCDPSession(page);
  const video = await file("harbour-morning.mp4");
  await cdp.send("Network.enable"); // slow enough to show the progress
  await cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: video.base64.length / 3 });
  await drop(page, [video]);
  await page.waitForSelector("#uploads >> text=uploaded");
  await cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  const row = rowOf(page, "harbour-morning.mp4");
  await row.waitFor();
  await chip(row, "transcode", "inprogress");
  await row.locator(".facts", { hasText: "ready after" }).waitFor({ timeout: 60000 }); // instead of the chips
  await row.locator(".state.s-completed").waitFor();
  await row.locator(".thumb img").waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll(".thumb img")].every((i) => i.naturalWidth > 0));
  await checkMark(page);
  const seen = await page.evaluate(() => ({ uploads: [...window.seen.uploads], chips: window.seen.chips, details: [...window.seen.details] }));
  const percents = seen.uploads.map((text) => parseInt(text)).filter((n) => n > 0 && n < 100);
  must(percents.length > 1, `states of the upload: ${seen.uploads.join(", ")}`);
  // After its parts the stage is ready again, for their join. The video may be published before its completion is shown.
  must(/inprogress( pending)?( completed)?$/.test(seen.chips.transcode?.join(" ")), `states of transcode: ${seen.chips.transcode}`);
  must(seen.details.some((text) => /^transcode \d+% \d+\.\d\d× · \d:\d\d left/.test(text)), `progress of transcode: ${seen.details.join(", ")}`);
});

await test("an upload resumes after a reload", async (page, context) => {
  page.on("dialog", (d) => d.accept()); // the confirmation before the page closes
  await signIn(page);
  await connected(page);
  const video = { ...await file("harbour-morning.mp4"), name: "in-two-parts.mp4", modified: 1700000000000 };
  const cdp = await context.newCDPSession(page);
  await cdp.send("Network.enable");
  const setThroughput = (uploadThroughput) => cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput });
  await setThroughput(video.base64.length / 10);
  await drop(page, [video]);
  await page.waitForFunction(() => parseInt(document.querySelector("#uploads .upload .dim")?.textContent) >= 20);
  await page.reload();
  await connected(page);
  await setThroughput(-1);
  const requests = [];
  page.on("response", (r) => { if (/\/uploads/.test(r.url()) && r.ok()) requests.push([r.request().method(), Number(r.headers()["upload-offset"])]); });
  await drop(page, [video]);
  await page.waitForSelector("#uploads >> text=uploaded");
  must(requests.every(([method]) => method !== "POST") && requests.some(([method, offset]) => method === "HEAD" && offset > 0), `the upload was not resumed: ${JSON.stringify(requests)}`);
  await rowOf(page, video.name).locator(".state.s-completed").waitFor({ timeout: 60000 });
});

await test("a published video plays to its end", async (page) => {
  await signIn(page);
  await page.click("text=harbour-morning.mp4");
  await connected(page);
  const frame = await (await page.waitForSelector("#player iframe")).contentFrame();
  await frame.waitForSelector("media-play-button");
  await frame.evaluate(() => {
    const v = document.querySelector("video");
    v.defaultPlaybackRate = 4;
    v.addEventListener("ended", () => { window.ended = v.currentTime; });
  });
  await frame.click("media-play-button.large");
  await frame.waitForFunction(() => window.ended, undefined, { timeout: 60000 });
  const [at, duration, width, sound] = await frame.evaluate(() => { const v = document.querySelector("video"); return [window.ended, v.duration, v.videoWidth, v.webkitAudioDecodedByteCount]; });
  must(Math.abs(at - duration) < 0.1 && at > 7.9 && width > 0 && sound > 0, `it ended at ${at} of ${duration} s, ${width} px wide, with ${sound} bytes of sound`);
});

await test("a permanent failure is listed as dead, and a retry succeeds after its source is repaired", async (page) => {
  await signIn(page);
  await connected(page);
  await mark(page);
  await drop(page, [await file("minutes.mp4")]);
  await add(page, `${given.videos}/notes.mp4`);
  for (const name of ["minutes.mp4", "notes.mp4"]) await rowOf(page, name).locator(".state.s-dead").waitFor({ timeout: 60000 });
  await checkMark(page);
  await page.click("nav >> text=Dead tasks");
  await connected(page);
  must(await page.locator(".group").count() === 1, "the dead tasks are not in one group");
  must(/2 ×.*ingest.*permanent.*not/s.test(await page.locator(".group header").textContent()), `the group is ${await page.locator(".group header").textContent()}`);
  await control("replace", { name: "notes.mp4", by: "harbour-morning.mp4" });
  await control("speed", { factor: "100" });
  await page.locator("[data-row]", { hasText: "notes.mp4" }).locator("[data-retry]").click();
  await page.waitForSelector("text=Retrying the failed stages.");
  await page.waitForFunction(() => document.querySelector("#dead-head h1").textContent === "1 dead task");
  await page.click("nav >> text=Board");
  await rowOf(page, "notes.mp4").locator(".state.s-completed").waitFor({ timeout: 60000 });
});

await test("a page is correct after a reload and after the daemon is killed", async (page) => {
  await signIn(page);
  await connected(page);
  await control("speed", { factor: "2" });
  await add(page, `${given.videos}/night-train.mp4`);
  await rowOf(page, "night-train.mp4").locator(".name").click();
  await connected(page);
  const percent = async () => { // of transcode; ingest briefly has one, too
    const running = page.locator("#stages .chip.s-inprogress:has(.bar)", { hasText: "transcode" });
    await running.waitFor({ timeout: 60000 });
    return parseInt(await running.locator(".chip-word").textContent());
  };
  const before = await percent();
  await page.reload();
  await connected(page);
  must(await percent() >= before, "the progress went back");
  await mark(page);
  await control("kill");
  await page.waitForSelector('#live-state[data-state="stale"]');
  must(/since \d/.test(await page.textContent("#live-since")), "the page does not show since when it is stale");
  await control("speed", { factor: "100" });
  await control("start");
  await connected(page);
  await page.waitForSelector("#attempts .a-expired");
  await chip(page, "transcode", "completed");
  await page.waitForSelector("#head .state.s-completed", { timeout: 60000 });
  await checkMark(page);
  const attempts = await page.textContent("#attempts");
  must(/expired\s*transcode part \d+\s*, attempt 1/.test(attempts) && /completed\s*transcode\s*, 3 parts/.test(attempts), `the attempts are ${attempts}`);
  must(await page.locator("text=Retry from…").count() === 1, "the user is signed out");
});

await test("a video is replaced with another source", async (page) => {
  await signIn(page, given.admin, "/dead");
  await page.locator("[data-open]", { hasText: "minutes.mp4" }).click();
  await connected(page);
  const old = page.url();
  await page.click("text=Replace…");
  await checkAccessibility(page, "the confirmation");
  await page.fill("#dialog >> #source", `${given.videos}/harbour-morning.mp4`);
  await page.click("#dialog >> button[type=submit]");
  await page.waitForSelector("#head >> text=Replaced by");
  await page.locator("#head .note a").click();
  await page.waitForURL((u) => u.href !== old);
  await page.waitForSelector("#head >> text=Replaces");
  await page.waitForSelector("#head .state.s-completed", { timeout: 60000 });
});

// The following tests have a video of each status, and a replaced one.
let videos = [];
await test("a video of each status", async (page) => {
  await signIn(page);
  await connected(page);
  await control("speed", { factor: "0.05" }); // slow enough to run during all following tests
  await add(page, `${given.videos}/night-train.mp4`);
  await add(page, "http://127.0.0.1:9/unreachable-for-now.mp4");
  await drop(page, [await file("minutes.mp4")]);
  await page.waitForSelector(".row.s-inprogress .chip.s-inprogress:has(.bar)", { timeout: 60000 });
  await page.waitForSelector(".row.s-failed");
  await page.waitForSelector(".row.s-dead");
  await add(page, `${given.videos}/is-not-there.mp4`);
  await add(page, `${given.videos}/night-train.mp4`);
  await page.waitForSelector(".row .chip.s-pending >> text=transcode"); // one transcode runs at a time
  // A divided stage whose only part waits for the slot counts as running.
  for (const count of ["2 running", "1 retrying", "2 dead", "1 worker"]) await page.waitForSelector(`#overview .number >> text=/^\\s*${count}/`);
  // The failed video is retried a few times and then dead.
  videos = await (await page.waitForFunction(() => {
    const rows = document.querySelectorAll(".row.s-inprogress, .row.s-dead, .row.s-failed, .row.s-completed");
    const kinds = new Map([...rows].map((r) => [r.className, `/videos/${r.id.slice(2)}`]));
    return kinds.size === 5 && [...kinds.values()];
  })).jsonValue();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    await test(`pages are accessible, ${colorScheme}, ${width} px`, async (page) => {
      await signIn(page);
      await connected(page);
      for (const path of ["/", ...videos, "/workers?gone", "/dead", "/latency"]) {
        await page.goto(given.url + path);
        await connected(page);
        await checkWidth(page, path);
        await page.screenshot({ path: `${given.pictures}/real${path.replace(/\/videos\/.*-/, "-video-").replace(/\W/g, "-")}-${colorScheme}-${width}.png`, fullPage: true });
        await checkAccessibility(page, path);
      }
    }, { colorScheme, viewport: { width, height: width > 500 ? 860 : 740 } });
  }
}

await test("keyboard shortcuts move, search and retry", async (page) => {
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
  must(await page.isVisible("#help"), "? does not open the list of shortcuts");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("r");
  await page.waitForSelector("text=Retrying the failed stages.");
  await page.waitForSelector(".row.s-dead"); // the retry fails
});

await test("a read-only user sees no buttons, and forged requests are refused", async (page) => {
  await signIn(page, given.reader);
  await connected(page);
  const id = await idOf(page, "night-train.mp4");
  for (const path of ["/", `/videos/${id}`, "/workers", "/dead", "/latency"]) {
    await page.goto(given.url + path);
    await connected(page);
    must(!(await page.locator("main :is(button[type=submit], [data-post], [data-dialog], [data-upload])").filter({ hasNotText: "Apply" }).count()), `${path} has buttons`);
  }
  for (const path of [`/videos/${id}/cancel`, `/videos/${id}/retry`, `/videos/${id}/override`, "/dead/retry", "/pause", "/add", `/api/v1/tasks/${id}/cancel`]) {
    const status = await page.evaluate(async (path) => (await fetch(path, { method: "POST", body: new URLSearchParams({ source: "/etc/hosts", all: "1" }) })).status, path);
    must(status === 403, `forged POST ${path}: status ${status}`);
  }
  await page.click("text=Sign out");
  await page.waitForSelector("#secret");
  await page.goto(`${given.url}/workers`);
  await page.waitForSelector("#secret");
});

await test("a submitter can add URLs, and nothing else", async (page) => {
  await signIn(page, given.submitter);
  await connected(page);
  must(!(await page.locator("[data-retry]").count()), "the page offers a retry");
  await page.click("text=Add…");
  await page.fill("#dialog >> #source", "/etc/hosts");
  await page.click("#dialog >> button[type=submit]");
  await page.waitForSelector("#messages >> text=/You do not have permission.*upload the file/");
  await page.fill("#dialog >> #source", "http://127.0.0.1:9/from-a-camera.mp4");
  await page.click("#dialog >> button[type=submit]");
  await rowOf(page, "from-a-camera.mp4").waitFor();
});

await test("a running video is cancelled after a confirmation", async (page) => {
  await signIn(page);
  await connected(page);
  const row = page.locator(".row.s-inprogress").first();
  await row.locator(".name").click();
  await page.click("text=Cancel…");
  await checkAccessibility(page, "the confirmation");
  await page.click("#dialog >> text=Cancel this video");
  await page.waitForSelector("#head .state.s-cancelled");
});

await test("pages and retries work without scripts", async (page) => {
  await signIn(page);
  must(await page.locator(".row").count() >= 5, "the board has too few rows");
  must(/completed/.test(await rowOf(page, "harbour-morning.mp4").first().textContent()), "the row does not show that the video is completed");
  await page.locator(".row.s-dead .name").first().click();
  must((await page.textContent("#attempts")).includes("failed"), "the page shows no failed attempt");
  await page.click("#head >> button >> text=Retry");
  await page.waitForSelector(".messages >> text=Retrying the failed stages.");
  await page.goto(`${given.url}/dead`);
  must(await page.locator("#dead-head").count() === 1, "the page of dead tasks is not shown");
}, { javaScriptEnabled: false });

await done();
