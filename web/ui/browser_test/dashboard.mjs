// Uses the dashboard as people do. It is given JSON with addresses and ids, says
// what it finds, and ends with 1 if any of that is wrong.
import { connected, control, done, drop, given, must, narrow, sound, state, test } from "../../../internal/browsertest/browser.mjs";

const screens = {
  board: "/", video: `/videos/${given.published}`, retrying: `/videos/${given.retrying}`, running: `/videos/${given.running}`,
  workers: "/workers", dead: "/dead", latency: "/latency", login: "/login", ask: `/videos/${given.waiting}/cancel`,
};

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    await test(`all screens, ${colorScheme}, ${width} px`, async (page) => {
      for (const [name, path] of Object.entries(screens)) {
        await page.goto(given.url + path);
        if (name !== "login" && name !== "ask") await connected(page);
        await page.evaluate(() => document.fonts.ready);
        await narrow(page, name);
        await page.screenshot({ path: `${given.pictures}/${name}-${colorScheme}-${width}.png` });
        if (width > 500) await page.screenshot({ path: `${given.pictures}/${name}-${colorScheme}-${width}-full.png`, fullPage: true });
        await sound(page, name);
      }
    }, { colorScheme, viewport: { width, height: width > 500 ? 860 : 740 }, deviceScaleFactor: width > 500 ? 1 : 2 });
  }
}

await test("chips move without a reload, and nothing is stolen", async (page) => {
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
  must(await page.evaluate(() => window.here) === "here", "the page was loaded again");
  must(await page.inputValue("[data-search]") === "half a wo", "what was typed is gone");
  must(await page.evaluate(() => document.activeElement.matches("[data-search]")), "the focus was stolen");
  must(await row.evaluate((e) => e.kept) === "kept", "the row was replaced");
  const now = await row.evaluate((e) => e.getBoundingClientRect().top);
  must(Math.abs(now - at) < 2, `what is looked at moved by ${now - at} px`);
});

await test("an open detail stays open and a selection holds the page still", async (page) => {
  await page.goto(`${given.url}/videos/${given.running}`);
  await connected(page);
  await page.locator("#stages details summary").click();
  const word = () => page.locator("#stages .chip.s-inprogress .chip-word").textContent();
  let before = await word();
  await page.waitForFunction((was) => document.querySelector("#stages .chip.s-inprogress .chip-word").textContent !== was, before);
  must(await page.locator("#stages details").evaluate((e) => e.open), "the detail was closed");
  await page.evaluate(() => getSelection().selectAllChildren(document.querySelector("h1")));
  before = await word();
  await page.waitForTimeout(2500);
  must(await word() === before, "the page moved under a selection");
  await page.evaluate(() => getSelection().removeAllRanges());
  await page.waitForFunction((was) => document.querySelector("#stages .chip.s-inprogress .chip-word").textContent !== was, before);
});

await test("the page can be paused, and catches up", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await page.keyboard.press("p");
  must(await state(page) === "paused", "it is not paused");
  await control("submit", { source: "/srv/inbox/while-paused.mp4" });
  await page.waitForSelector("text=there is news");
  must(!(await page.locator("text=while-paused.mp4").count()), "it moved while it was paused");
  await page.click("#live-state");
  await page.waitForSelector("text=while-paused.mp4");
  must(await page.locator("text=while-paused.mp4").count() === 1, "it is there twice");
  await connected(page);
});

await test("the page recovers when the daemon was away", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await control("stop");
  await page.waitForSelector('#live-state[data-state="stale"]');
  must(/since \d/.test(await page.textContent("#live-since")), "it does not say since when");
  await control("submit", { source: "/srv/inbox/while-away.mp4" });
  await control("start");
  await connected(page);
  await page.waitForSelector("text=while-away.mp4");
  await control("submit", { source: "/srv/inbox/after.mp4" });
  await page.waitForSelector("text=after.mp4");
});

await test("a stream that does not begin is begun again", async (page) => {
  let refused = 0;
  await page.route("**/live?*", (route) => refused++ ? route.continue() : route.abort());
  await page.goto(`${given.url}/`);
  await page.waitForSelector('#live-state[data-state="stale"]');
  await connected(page);
});

await test("who is signed out is told so", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await control("out");
  try {
    await page.waitForSelector("#live-state >> text=signed out");
    await page.waitForTimeout(1500);
    must(await page.locator("#live-state >> text=signed out").count(), "it is forgotten");
  } finally { await control("in"); }
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
  must(before > 0, "there was nothing");
});

await test("one is retried from the dead letters", async (page) => {
  await page.goto(`${given.url}/dead`);
  await connected(page);
  const count = () => page.locator("#dead-head h1").textContent();
  const before = parseInt(await count());
  await page.locator("[data-row]", { hasText: "flight-3.mov" }).locator("[data-retry]").click();
  await page.waitForSelector("text=What failed is tried again.");
  await page.waitForFunction((n) => parseInt(document.querySelector("#dead-head h1").textContent) === n - 1, before);
  must(!(await page.locator("text=flight-3.mov").count()), "it is still there");
});

await test("the ticked ones are retried after a question with their exact number", async (page) => {
  await page.goto(`${given.url}/dead`);
  await connected(page);
  await page.click("text=Try the ticked again…");
  await page.waitForSelector("#dialog[open] >> text=Nothing is ticked");
  await page.keyboard.press("Escape");
  await page.locator("[data-row]", { hasText: "flight-2.mov" }).locator("input").check();
  await control("submit", { source: "/srv/inbox/something-else.mp4" });
  await page.waitForTimeout(800);
  must(await page.locator("[data-row]", { hasText: "flight-2.mov" }).locator("input").isChecked(), "the tick is gone");
  await page.click("text=Try the ticked again…");
  await page.waitForSelector("#dialog[open] >> text=Exactly 1 video");
  await page.screenshot({ path: `${given.pictures}/dialog-light-1280.png` });
  await sound(page, "the dialog");
  await page.click("#dialog >> text=Try 1 video again");
  await page.waitForSelector("text=1 video will be tried again.");
  await page.waitForFunction(() => !document.body.textContent.includes("flight-2.mov"));
  must(!(await page.locator("#dialog[open]").count()), "the dialog stays");
});

await test("a stage is paused and resumed", async (page) => {
  await page.goto(`${given.url}/workers`);
  await connected(page);
  await page.click('#s-transcode >> text=Pause…');
  await page.click("#dialog >> button >> text=Pause");
  await page.waitForSelector("#pauses >> text=transcode is paused");
  await page.click("#pauses >> text=Resume");
  await page.waitForFunction(() => !document.querySelector("#pauses").children.length);
});

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
  must(await page.inputValue("[data-search]") === "jk?", "keys are eaten in a field");
  await page.locator("h1").first().evaluate((e) => document.activeElement.blur());
  await page.keyboard.press("?");
  must(await page.isVisible("#help"), "? does not help");
  await sound(page, "the help");
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
  must(light !== dark, "it does not change");
  await page.reload();
  must(await background() === dark, "it is not remembered");
}, { colorScheme: "light" });

await test("a page that cannot be read comes back by itself", async (page) => {
  await page.goto(`${given.url}/`);
  await connected(page);
  await control("break");
  try {
    await page.waitForSelector('#live-state[data-state="stale"]', { timeout: 20000 });
    await page.reload();
    await page.waitForSelector("text=The database does not answer as it should");
  } finally { await control("mend"); }
  await connected(page);
});

await test("a video plays to its end", async (page) => {
  if (!given.playable) return;
  await page.goto(`${given.url}/videos/${given.published}`);
  await connected(page);
  await page.evaluate(() => { const v = document.querySelector("video"); v.muted = true; v.defaultPlaybackRate = 4; v.addEventListener("ended", () => { window.ended = v.currentTime; }); });
  await page.click(".play");
  await page.waitForFunction(() => window.ended > 4.5, undefined, { timeout: 30000 });
});

await test("who may only look sees no buttons", async (page) => {
  await control("hold");
  try {
    for (const path of ["/", "/dead", "/workers", `/videos/${given.running}`]) {
      await page.goto(given.url + path);
      await connected(page);
      must(!(await page.locator("[data-act], [data-dialog], [data-dialog-form] button").count()), `there are buttons on ${path}`);
    }
    const answer = await page.request.post(`${given.url}/videos/${given.waiting}/cancel`);
    must(answer.status() === 403, `cancelling is answered with ${answer.status()}`);
  } finally { await control("let"); }
});

await test("a video that is published while its page is open can be played", async (page) => {
  await page.goto(`${given.url}/videos/${given.running}`);
  await connected(page);
  must(!(await page.locator("video").count()), "there is a player already");
  await control("finish", { id: given.running });
  await page.waitForSelector(".play");
  must(await page.locator("#stages .chip.s-completed").count() === 5, "not all chips are done");
});

await test("everything works without scripts", async (page) => {
  for (const path of Object.values(screens)) {
    const answer = await page.goto(given.url + path);
    must(answer.ok(), `${path} is answered with ${answer.status()}`);
  }
  await page.goto(`${given.url}/videos/${given.waiting}`);
  await page.click("text=Cancel…");
  await page.click("text=Cancel this video");
  await page.waitForSelector(".said >> text=It is cancelled.");
  must((await page.textContent("#head")).includes("cancelled"), "it is not cancelled");
  await page.click("#head >> text=Try again");
  await page.waitForSelector(".said >> text=What failed is tried again.");
  await page.goto(`${given.url}/dead`);
  await page.click("text=/Try all \\d+ again…/ >> nth=0");
  await page.click("button >> text=/Try \\d+ videos? again/");
  await page.waitForSelector("text=Nothing is dead");
}, { javaScriptEnabled: false });

await done();
