// Takes the pictures of the README.
import { connected, control, done, given, test } from "../browsertest/browser.mjs";

const rowOf = (page, title) => page.locator(".row", { has: page.locator(".name", { hasText: title }) });
const add = async (page, name) => {
  await page.click("text=Add…");
  await page.fill("#dialog >> #source", `${given.videos}/${name}`);
  await page.click("#dialog >> button[type=submit]");
  await page.waitForSelector("#dialog:not([open])", { state: "attached" });
  await rowOf(page, name).waitFor();
};
// picture takes a picture of a page without its footer.
const picture = async (page, name) => {
  await page.evaluate(() => document.activeElement.blur());
  await page.mouse.move(0, 0);
  await page.evaluate(() => document.querySelectorAll("#messages p").forEach((p) => p.remove()));
  const { width, bottom } = await page.evaluate(() => ({ width: innerWidth, bottom: Math.ceil(Math.max(...[...document.querySelectorAll("main > *")].map((e) => e.getBoundingClientRect().bottom)) + scrollY) }));
  await page.setViewportSize({ width, height: bottom + 16 });
  await page.waitForFunction(() => [...document.querySelectorAll("img")].every((i) => i.complete && i.naturalWidth));
  await page.screenshot({ path: `${given.to}/${name}.png`, animations: "disabled", clip: { x: 0, y: 0, width, height: bottom + 16 } });
};

await test("pictures", async (page) => {
  await page.goto(given.url);
  await page.fill("#secret", given.admin);
  await page.click("text=Sign in >> nth=-1");
  await connected(page);
  await add(page, "interview-take-3.mp4");
  await rowOf(page, "interview-take-3.mp4").locator(".state.s-dead").waitFor();
  await add(page, "garden-in-june.mov");
  await rowOf(page, "garden-in-june.mov").locator(".state.s-completed").waitFor({ timeout: 120000 });
  await control("speed", { factor: "5" });
  await add(page, "harbour-morning.mp4");
  const harbour = rowOf(page, "harbour-morning.mp4");
  await page.waitForFunction(() => parseInt(document.querySelector(".chip.s-inprogress:has(.bar) .chip-word")?.textContent) >= 30, undefined, { timeout: 60000 });
  await control("kill");
  await control("start");
  await harbour.locator(".state.s-completed").waitFor({ timeout: 120000 });
  await control("speed", { factor: "1.6" });
  await add(page, "night-train.mp4");
  await rowOf(page, "night-train.mp4").locator(".chip.s-inprogress", { hasText: "transcode" }).waitFor({ timeout: 60000 });
  await add(page, "a-walk-along-the-northern-coast-part-2.mp4");
  await rowOf(page, "a-walk-along").locator(".chip.s-completed", { hasText: "metadata" }).waitFor({ timeout: 60000 });
  await page.waitForFunction(() => parseInt(document.querySelector(".chip.s-inprogress:has(.bar) .chip-word")?.textContent) >= 40, undefined, { timeout: 60000 });
  await control("host");
  await page.evaluate(() => scrollTo(0, 0));
  await picture(page, "board");
  await page.setViewportSize({ width: 1280, height: 860 });
  await harbour.locator(".name").click();
  await connected(page);
  await page.click("summary >> text=Shell commands");
  await picture(page, "video");
}, { colorScheme: "light" });

await done();
