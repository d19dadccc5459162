// Uses the dashboard as a user does. It gets JSON with addresses and ids, prints the result
// of each test, and exits with 1 if one failed.
import { checkAccessibility, checkWidth, connected, control, done, drop, given, must, state, test } from "../../../internal/browsertest/browser.mjs";

const screens = {
  board: "/", video: `/videos/${given.published}`, retrying: `/videos/${given.retrying}`, running: `/videos/${given.running}`,
  divided: `/videos/${given.divided}`, deadPart: `/videos/${given.deadPart}`, retryForm: `/videos/${given.divided}/retry`,
  workers: "/workers", dead: "/dead", latency: "/latency", profiles: "/profiles", deleted: "/deleted", login: "/login", ask: `/videos/${given.waiting}/cancel`, key: "/keys/create",
};

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    await test(`all pages, ${colorScheme}, ${width} px`, async (page) => {
      for (const [name, path] of Object.entries(screens)) {
        await page.goto(given.url + path);
        if (!["profiles", "deleted", "login", "ask", "key", "retryForm"].includes(name)) await connected(page);
        await page.evaluate(() => document.fonts.ready);
        if (name === "retrying") await page.evaluate(() => document.querySelectorAll("main details").forEach((d) => { d.open = true; }));
        await checkWidth(page, name);
        await page.screenshot({ path: `${given.pictures}/${name}-${colorScheme}-${width}.png` });
        if (width > 500) await page.screenshot({ path: `${given.pictures}/${name}-${colorScheme}-${width}-full.png`, fullPage: true });
        if (width > 500) await checkAccessibility(page, name);
      }
    }, { colorScheme, viewport: { width, height: width > 500 ? 860 : 740 }, deviceScaleFactor: width > 500 ? 1 : 2 });
  }
}

await test("chips update without a reload, and the user keeps focus and input", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  const row = page.locator(`#t-${given.running}`), word = row.locator(".chip.s-inprogress .chip-word");
  const before = await word.textContent();
  await page.evaluate(() => { window.here = "here"; });
  await page.fill("[data-search]", "half a wo");
  await page.locator(`#t-${given.running}`).evaluate((e) => { e.kept = "kept"; });
  await page.mouse.wheel(0, 500);
  await page.waitForFunction(() => scrollY > 300);
  const at = await row.evaluate((e) => e.getBoundingClientRect().top);
  await page.waitForFunction(([id, was]) => document.querySelector(`#t-${id} .chip.s-inprogress .chip-word`).textContent !== was, [given.running, before]);
  await control("submit", { source: "/srv/inbox/one-more.mp4" });
  await page.waitForSelector("text=one-more.mp4");
  must(await page.evaluate(() => window.here) === "here", "the page was reloaded");
  must(await page.inputValue("[data-search]") === "half a wo", "the input is lost");
  must(await page.evaluate(() => document.activeElement.matches("[data-search]")), "the focus is lost");
  must(await row.evaluate((e) => e.kept) === "kept", "the row was replaced");
  const now = await row.evaluate((e) => e.getBoundingClientRect().top);
  must(Math.abs(now - at) < 2, `the row moved by ${now - at} px`);
});

await test("the parts of a stage fill without a reload", async (page) => {
  await page.goto(`${given.url}/videos/${given.divided}`);
  await connected(page);
  const completed = () => page.locator("#parts .p-completed").count(), before = await completed();
  const filled = () => page.locator("#parts .p-inprogress rect").first().getAttribute("height"), height = await filled();
  must(before === 40 && await page.locator("#parts .part").count() === 121, `${before} parts are completed`);
  await page.waitForFunction((was) => document.querySelector("#parts .p-inprogress rect").getAttribute("height") !== was, height);
  const part = page.locator("#parts .p-inprogress").first(), title = await part.getAttribute("title");
  must(/^part 41: in progress, \d+%.*, attempt 1, for .* on north 1/.test(title), `the title is ${title}`);
  await page.locator("#parts .part").nth(80).evaluate((e) => { e.kept = "kept"; });
  await control("complete-part", { id: given.divided });
  await page.waitForFunction((n) => document.querySelectorAll("#parts .p-completed").length === n, before + 1);
  must(await page.locator("#parts .part").nth(80).evaluate((e) => e.kept) === "kept", "all cells were replaced");
  must(/ 41\/121 parts, 2 running on 2 hosts, 1 retrying/.test(await page.textContent("#parts-summary")), await page.textContent("#parts-summary"));
});

await test("an open detail stays open and a selection pauses updates", async (page) => {
  await page.goto(`${given.url}/videos/${given.running}`);
  await connected(page);
  await page.locator("#stages details summary").click();
  const word = () => page.locator("#stages .chip.s-inprogress .chip-word").textContent();
  let before = await word();
  await page.waitForFunction((was) => document.querySelector("#stages .chip.s-inprogress .chip-word").textContent !== was, before);
  must(await page.locator("#stages details").evaluate((e) => e.open), "the detail was closed");
  await page.evaluate(() => {
    window.held = 0;
    document.querySelector("#live").addEventListener("htmx:sse:before:message", (e) => { if (e.detail.cancelled) window.held++; });
    getSelection().selectAllChildren(document.querySelector("h1"));
  });
  before = await word();
  await page.waitForFunction(() => window.held > 1);
  must(await word() === before, "the page changed during a selection");
  must(await page.textContent("#live-word") === "paused" && await page.textContent("#live-since") === "text is selected", "the page does not show why it is paused");
  must(await state(page) === "paused", "the state is not paused");
  await page.evaluate(() => getSelection().removeAllRanges());
  await connected(page);
  await page.waitForFunction((was) => document.querySelector("#stages .chip.s-inprogress .chip-word").textContent !== was, before);
});

await test("a press of another mouse button does not pause updates", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await page.evaluate(() => { // the menu gets the release
    document.querySelector("main").dispatchEvent(new PointerEvent("pointerdown", { button: 2, bubbles: true }));
    document.querySelector("main").dispatchEvent(new MouseEvent("contextmenu", { button: 2, bubbles: true }));
  });
  await control("submit", { source: "/srv/inbox/after-the-menu.mp4" });
  await page.waitForSelector("text=after-the-menu.mp4");
});

await test("a page with a missing element gets a full update", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await page.evaluate((id) => document.querySelector(`#t-${id}`).remove(), given.running);
  await page.waitForSelector(`#t-${given.running}`); // the target of its next update
  await connected(page);
});

await test("ages follow the server's clock", async (page) => {
  await page.addInitScript(() => { const now = Date.now; Date.now = () => now() + 3600000; });
  await page.goto(`${given.url}/workers`);
  await connected(page);
  await page.waitForFunction(() => /last heartbeat (just now|\d+ s ago)/.test(document.querySelector("#workers").textContent));
});

await test("the page can be paused, and catches up", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await page.keyboard.press("p");
  must(await state(page) === "paused", "it is not paused");
  await control("submit", { source: "/srv/inbox/while-paused.mp4" });
  await page.waitForSelector("text=updates waiting");
  must(!(await page.locator("text=while-paused.mp4").count()), "the paused page changed");
  await page.click("#live-state");
  await page.waitForSelector("text=while-paused.mp4");
  must(await page.locator("text=while-paused.mp4").count() === 1, "the row exists twice");
  await connected(page);
});

await test("the page recovers after a restart of the daemon", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await control("stop");
  try {
    await page.waitForSelector('#live-state[data-state="stale"]');
    must(/since \d/.test(await page.textContent("#live-since")), "the page does not show since when it is stale");
    await page.setViewportSize({ width: 360, height: 740 });
    must(await page.isVisible("#live-since"), "on a phone the page does not show since when it is stale");
    await checkWidth(page, "a stale page");
    await page.screenshot({ path: `${given.pictures}/stale-light-360.png` });
    await page.setViewportSize({ width: 1280, height: 860 });
    await control("submit", { source: "/srv/inbox/while-away.mp4" });
  } finally { await control("start"); }
  await connected(page);
  await page.waitForSelector("text=while-away.mp4");
  await control("submit", { source: "/srv/inbox/after.mp4" });
  await page.waitForSelector("text=after.mp4");
});

await test("a stream that does not start is retried", async (page) => {
  let refused = 0;
  await page.route("**/live?*", (route) => refused++ ? route.continue() : route.abort());
  await page.goto(`${given.url}/`);
  await page.waitForSelector('#live-state[data-state="stale"]');
  await connected(page);
});

await test("a page shows that its user is signed out", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await page.evaluate(() => document.querySelector("#live").addEventListener("htmx:sse:close", () => { window.ended = true; }));
  await control("sign-out");
  try {
    await page.waitForSelector("#live-state >> text=signed out");
    await page.waitForFunction(() => window.ended); // no further requests
    must(await page.locator("#live-state >> text=signed out").count(), "the state is lost");
  } finally { await control("sign-in"); }
  await page.click("#live-state");
  await connected(page);
});

await test("files are uploaded by drag and drop", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  const before = await page.locator(".row").count();
  await drop(page, [{ name: "holiday.mp4", base64: Buffer.alloc(300000, 7).toString("base64") }]);
  await page.waitForSelector("#uploads >> text=uploaded");
  await page.waitForSelector(".rows >> text=/^[0-9a-f]{16}\\.mp4$/");
  must(before > 0, "the board was empty");
});

await test("a refused upload shows the server's reason", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await drop(page, [{ name: "refused.mp4", base64: Buffer.alloc(3000, 7).toString("base64") }]);
  await page.waitForSelector("#uploads >> text=this needs the scope submit, and the key has read");
  must(/refused \(422\)/.test(await page.locator(".upload").textContent()), "the status is not shown");
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    await page.screenshot({ path: `${given.pictures}/upload-refused-light-${width}.png` });
  }
  await checkAccessibility(page, "refused upload");
  page.once("dialog", (d) => d.accept()); // the page asks before it closes with a stopped upload
});

await test("two files are uploaded at a time", async (page, context) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  const line = await context.newCDPSession(page);
  await line.send("Network.enable");
  await line.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 20000 });
  await drop(page, [1, 2, 3, 4].map((n) => ({ name: `part-${n}.mp4`, base64: Buffer.alloc(200000, n).toString("base64") })));
  const are = (what) => page.locator(`.upload[data-state="${what}"]`);
  await page.waitForFunction(() => document.querySelectorAll('.upload[data-state="running"]').length === 2);
  must(await are("waiting").count() === 2 && /queued/.test(await are("waiting").first().textContent()), "the other uploads do not wait");
  await page.screenshot({ path: `${given.pictures}/uploads-light-1280.png` });
  await checkAccessibility(page, "uploads");
  await are("waiting").first().locator("button").click(); // stop the third
  await are("running").first().locator("button").click(); // stop the first
  await page.waitForFunction(() => [...document.querySelectorAll(".upload")].map((u) => u.dataset.state).join() === "stopped,running,stopped,running");
  await line.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  for (const n of [0, 1]) {
    await page.locator(".upload", { hasText: n ? "part-3" : "part-1" }).locator("text=Resume").click();
    await page.locator('.upload[data-state="done"]', { hasText: n ? "part-3" : "part-1" }).waitFor();
  }
  await page.waitForFunction(() => !document.querySelector('.upload:not([data-state="done"])'));
});

await test("r applies only to the selected row", async (page) => {
  let posts = 0;
  page.on("request", (r) => { if (r.method() === "POST") posts++; });
  for (const path of ["/", "/?state=dead", "/dead"]) {
    await page.goto(given.url + path);
    await connected(page);
    await page.keyboard.press("r");
    await page.reload();
    must(!posts, `r without a selection acts on ${path}`);
  }
});

await test("keyboard shortcuts can be turned off", async (page) => {
  await page.goto(`${given.url}/`);
  await page.keyboard.press("?");
  await page.click("text=Use keyboard shortcuts");
  await page.screenshot({ path: `${given.pictures}/help-light-1280.png` });
  await page.keyboard.press("Escape");
  for (const how of ["at once", "after a reload"]) {
    await page.locator("main").focus();
    await page.keyboard.press("j");
    must(await page.evaluate(() => !document.activeElement.closest(".row")), `${how} the shortcuts still work`);
    await page.reload();
  }
});

await test("a command is copied, or selected without a clipboard", async (page, context) => {
  const command = `cuelight show ${given.retrying}`;
  const copy = async () => {
    await page.goto(`${given.url}/videos/${given.retrying}`);
    await page.click("#stages summary");
    await page.click(`[data-copy="${command}"]`);
  };
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await copy();
  await page.waitForSelector("#messages >> text=Copied.");
  must(await page.evaluate(() => navigator.clipboard.readText()) === command, "the clipboard has another text");
  await page.addInitScript(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
  await copy();
  await page.waitForSelector("#messages >> text=The text is selected");
  must(await page.evaluate(() => String(getSelection())) === command, "the selection has another text");
});

// player returns the frame with the player of a video's page.
const player = async (page) => {
  const frame = await (await page.waitForSelector("#player iframe")).contentFrame();
  await frame.waitForSelector("media-play-button");
  return frame;
};

await test("a video that cannot be played shows an error", async (page) => {
  await page.goto(`${given.url}/videos/${given.replaced}`);
  await connected(page);
  await (await player(page)).waitForSelector('[role="alert"] >> text=It was deleted or replaced.');
  await page.screenshot({ path: `${given.pictures}/unplayable-light-1280.png` });
  await page.goto(`${given.url}/embed/${given.replaced}`);
  await page.waitForSelector('[role="alert"] >> text=It was deleted or replaced.');
  await checkAccessibility(page, "the player");
  await page.goto(`${given.url}/embed/${given.running}`);
  await page.waitForSelector('[role="alert"] >> text=not published');
  await checkAccessibility(page, "the player without a video");
});

await test("one dead task is retried", async (page) => {
  await page.goto(`${given.url}/dead`);
  await connected(page);
  const count = () => page.locator("#dead-head h1").textContent();
  const before = parseInt(await count());
  await page.keyboard.press("j");
  must(await page.evaluate(() => document.activeElement.textContent) === "flight-3.mov", "j does not go to the first row");
  await page.keyboard.press("r");
  await page.waitForSelector("text=Retrying the failed stages.");
  await page.waitForFunction((n) => parseInt(document.querySelector("#dead-head h1").textContent) === n - 1, before);
  must(!(await page.locator("text=flight-3.mov").count()), "the row is still there");
  await page.waitForFunction(() => document.activeElement.textContent === "flight-2.mov"); // the next row has the focus
});

await test("the selected tasks are retried after a confirmation with their exact number", async (page) => {
  await page.goto(`${given.url}/dead`);
  await connected(page);
  await page.click("text=Retry selected…");
  await page.waitForSelector("#dialog[open] >> text=No videos are selected");
  await page.keyboard.press("Escape");
  await page.locator("[data-row]", { hasText: "flight-2.mov" }).locator("input").check();
  await page.locator("[data-row]", { hasText: "encrypted.mp4" }).locator("[data-retry]").click();
  await page.waitForFunction(() => !document.body.textContent.includes("encrypted.mp4"));
  must(await page.locator("[data-row]", { hasText: "flight-2.mov" }).locator("input").isChecked(), "the selection is lost");
  await page.click("text=Retry selected…");
  await page.waitForSelector("#dialog[open] >> text=exactly 1 video");
  await page.screenshot({ path: `${given.pictures}/dialog-light-1280.png` });
  await checkAccessibility(page, "the dialog");
  await page.click("#dialog >> text=Retry 1 video");
  await page.waitForSelector("text=Retrying 1 video.");
  await page.waitForFunction(() => !document.body.textContent.includes("flight-2.mov"));
  must(!(await page.locator("#dialog[open]").count()), "the dialog is still open");
});

await test("a stage is paused and resumed", async (page) => {
  await page.goto(`${given.url}/workers`);
  await connected(page);
  await page.click('#s-transcode >> text=Pause…');
  await page.click("#dialog >> button >> text=Pause");
  await page.waitForSelector("#pauses >> text=transcode paused");
  await page.click("#pauses >> text=Resume");
  await page.waitForFunction(() => !document.querySelector("#pauses").children.length);
});

await test("a worker is drained, from a phone", async (page) => {
  await page.goto(`${given.url}/workers`);
  await connected(page);
  await page.locator(".worker").last().locator("text=Drain…").click();
  await page.waitForSelector("#dialog[open]");
  await checkWidth(page, "the dialog");
  must(await page.locator("#dialog").evaluate((d) => d.scrollWidth <= d.clientWidth), "the content overflows the dialog");
  await page.screenshot({ path: `${given.pictures}/dialog-light-360.png` });
  await checkAccessibility(page, "the dialog");
  await page.click("#dialog button >> text=Drain");
  await page.waitForSelector(".worker >> text=drain requested");
  must(await page.locator("#live-state .live-dot").evaluate((e) => getComputedStyle(e).animationName) === "none", "the page is animated despite reduced motion");
}, { viewport: { width: 360, height: 740 }, reducedMotion: "reduce" });

await test("keys move through the rows", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  const second = await page.locator(".row").nth(1).getAttribute("id");
  must(await page.evaluate(() => document.activeElement.closest(".row").id) === second, "j does not go to the second row");
  await control("submit", { source: "/srv/inbox/pushes-down.mp4" });
  await page.waitForSelector("text=pushes-down.mp4");
  must(await page.evaluate(() => document.activeElement.closest(".row").id) === second, "the focus did not stay with its row");
  await page.keyboard.press("k");
  await page.keyboard.press("/");
  must(await page.evaluate(() => document.activeElement.matches("[data-search]")), "/ does not search");
  await page.keyboard.type("jk?");
  must(await page.inputValue("[data-search]") === "jk?", "shortcuts work in an input");
  await page.locator("h1").first().evaluate((e) => document.activeElement.blur());
  await page.keyboard.press("?");
  must(await page.isVisible("#help"), "? does not open the list of shortcuts");
  await checkAccessibility(page, "the shortcuts");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/videos/*");
});

await test("the theme is remembered", async (page) => {
  await page.goto(`${given.url}/`);
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.click('[aria-label^="Change theme"]');
  await page.click('[aria-label^="Change theme"]');
  const dark = await background();
  must(light !== dark, "the theme does not change");
  await page.reload();
  must(await background() === dark, "the theme is not remembered");
}, { colorScheme: "light" });

await test("a page that cannot be read reloads itself", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await control("break-database");
  try {
    await page.waitForSelector('#live-state[data-state="stale"]', { timeout: 20000 });
    await page.reload();
    await page.waitForSelector("text=The database is not available");
  } finally { await control("repair-database"); }
  await page.waitForSelector('#live-state[data-state="connected"]', { timeout: 60000 });
});

await test("a video plays to its end", async (page) => {
  if (!given.playable) return;
  await page.goto(`${given.url}/videos/${given.published}`);
  await connected(page);
  const frame = await player(page);
  await frame.evaluate(() => { const v = document.querySelector("video"); v.muted = true; v.defaultPlaybackRate = 4; v.addEventListener("ended", () => { window.ended = v.currentTime; }); });
  await frame.click("media-play-button.large");
  await frame.waitForFunction(() => window.ended > 4.5, undefined, { timeout: 30000 });
  must(await frame.evaluate(() => document.querySelector("video").webkitAudioDecodedByteCount > 0), "it has no sound");
});

await test("the player has sizes, speeds, captions and languages, and starts at a time", async (page) => {
  if (!given.playable) return;
  await page.goto(`${given.url}/embed/${given.published}?t=2`);
  const video = (read) => page.evaluate(`(() => { const v = document.querySelector("video"); return ${read}; })()`);
  must(await page.locator("media-time-display").evaluate((e) => e.shadowRoot.textContent.includes("0:05")), "the length is not shown");
  await checkAccessibility(page, "the player");
  await page.evaluate(() => { document.querySelector("video").muted = true; });
  await page.click("media-play-button.large");
  await page.waitForFunction(() => document.querySelector("video").currentTime > 2);
  must(await video("v.currentTime") < 4.5, "it did not start at 2 s");
  await page.keyboard.press("k"); // pause
  const choose = async (menu, list, choice) => {
    if (await page.locator("media-settings-menu").evaluate((e) => e.hidden)) await page.click("media-settings-menu-button");
    await page.locator("media-settings-menu-item", { hasText: menu }).click();
    await choice(page.locator(`media-${list}-menu [role^=menuitem]`)).click();
  };
  await choose("Speed", "playback-rate", (all) => all.filter({ hasText: "1.5x" }));
  must(await video("v.playbackRate") === 1.5, "the speed is not 1.5");
  await choose("Quality", "rendition", (all) => all.filter({ hasText: "90p" }));
  await page.evaluate(() => { const v = document.querySelector("video"); v.playbackRate = 1; v.play(); }); // from the next segment on
  await page.waitForFunction(() => document.querySelector("video").videoHeight === 90);
  await page.evaluate(() => document.querySelector("video").pause()); // otherwise the controls hide
  await choose("Captions", "captions", (all) => all.filter({ hasText: "Norsk" }));
  await page.waitForFunction(() => [...document.querySelector("video").textTracks].some((t) => t.label === "Norsk" && t.mode === "showing" && t.cues?.[0]?.text === "Hei"));
  await choose("Language", "audio-track", (all) => all.nth(1));
  await page.waitForFunction(() => document.querySelector("video").audioTracks[1].enabled);
  await page.setViewportSize({ width: 320, height: 180 });
  await checkWidth(page, "the small player");
});

await test("a chapter is played from its start, with the keyboard, too", async (page) => {
  if (!given.playable) return;
  await page.goto(`${given.url}/videos/${given.published}`);
  await connected(page);
  const frame = await player(page);
  const chapter = (title) => page.getByRole("navigation", { name: "Chapters" }).getByRole("button", { name: title });
  const plays = (from, to) => frame.waitForFunction(([a, b]) => { const v = document.querySelector("video"); return v.currentTime >= a && v.currentTime < b; }, [from, to]);
  await frame.evaluate(() => { const v = document.querySelector("video"); v.muted = true; v.defaultPlaybackRate = v.playbackRate = 0.1; });
  await chapter("The Fjord").click(); // nothing is loaded yet
  await plays(3, 5);
  await chapter("Past the lighthouses").focus();
  await page.keyboard.press("Enter");
  await plays(1.5, 3);
  must(await chapter("Past the lighthouses").evaluate((e) => document.activeElement === e), "the focus left the list");
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 740 });
    await checkWidth(page, "chapters");
    await checkAccessibility(page, "chapters");
  }
});

await test("a read-only user sees no buttons", async (page) => {
  await control("read-only");
  try {
    for (const path of ["/", "/dead", "/workers", `/videos/${given.running}`]) {
      await page.goto(given.url + path);
      await connected(page);
      must(!(await page.locator("[data-post], [data-dialog], [data-dialog-form] button").count()), `${path} has buttons`);
    }
    const answer = await page.request.post(`${given.url}/videos/${given.waiting}/cancel`);
    must(answer.status() === 403, `cancel: status ${answer.status()}`);
  } finally { await control("read-write"); }
});

await test("a video that is published while its page is open can be played", async (page) => {
  await page.goto(`${given.url}/videos/${given.running}`);
  await connected(page);
  must(!(await page.locator("#player iframe").count()), "the page already has a player");
  await control("finish", { id: given.running });
  await page.waitForSelector("#player iframe");
  must(await page.locator("#stages .chip.s-completed").count() === 5, "not all chips are completed");
});

await test("everything works without scripts", async (page) => {
  for (const path of Object.values(screens)) {
    const answer = await page.goto(given.url + path);
    must(answer.ok(), `${path}: status ${answer.status()}`);
  }
  await page.goto(`${given.url}/videos/${given.waiting}`);
  await page.click("text=Cancel…");
  await page.click("text=Cancel this video");
  await page.waitForSelector(".messages >> text=The video is cancelled.");
  must((await page.textContent("#head")).includes("cancelled"), "the video is not cancelled");
  await page.click("#head >> button >> text=Retry");
  await page.waitForSelector(".messages >> text=Retrying the failed stages.");
  await page.goto(`${given.url}/dead`);
  await page.click("text=/Retry all \\d+…/ >> nth=0");
  await page.click("button >> text=/Retry \\d+ videos?/");
  await page.waitForSelector("text=No dead tasks");
}, { javaScriptEnabled: false });

await done();
