// Plays published videos with hls.js, its light version and dash.js, several at once,
// and waits until each says that it has ended.
import { given, must, test, done } from "./browser.mjs";

const players = { hls: "/hls.js", light: "/hls.light.js", dash: "/dash.js" };
const atOnce = 4;

async function play(page, player, clip) {
  await page.goto(`${given.address}/blank`);
  await page.addScriptTag({ url: given.address + players[player] });
  await page.evaluate(([player, clip, rate, hold]) => {
    const video = document.body.appendChild(document.createElement("video"));
    video.muted = video.autoplay = true;
    window.said = "";
    video.onended = () => window.said ||= `ended at ${(window.endedAt = video.currentTime).toFixed(3)} s`;
    video.onerror = () => window.said ||= `error ${video.error.message}`;
    video.onplaying = () => video.playbackRate = rate;
    if (hold) video.addEventListener("playing", async () => {
      video.pause();
      await fetch("/hold");
      video.play();
    }, { once: true });
    if (player === "dash") {
      const dash = dashjs.MediaPlayer().create();
      dash.updateSettings({ streaming: { liveCatchup: { enabled: false } } });
      dash.on("error", (e) => window.said ||= `error ${e.error.message}`);
      dash.initialize(video, `/${clip}/manifest.mpd`, true);
      return;
    }
    const hls = new Hls();
    hls.on(Hls.Events.ERROR, (_, e) => { if (e.fatal) window.said ||= `error ${e.type} ${e.details}`; });
    hls.loadSource(`/${clip}/master.m3u8`);
    hls.attachMedia(video);
  }, [player, clip, given.rate, given.hold]);
  await page.waitForFunction(() => window.said, null, { timeout: given.within }).catch(() => {});
  const { said, at, length } = await page.evaluate(() => {
    const v = document.querySelector("video");
    return { said: window.said, at: window.endedAt ?? v.currentTime, length: v.duration };
  });
  must(said, `no end; it stands at ${at.toFixed(3)} of ${length.toFixed(3)} s`);
  must(said.startsWith("ended") && at > given.clips[clip] - 0.15, `${said}; it lasts ${given.clips[clip]} s`);
}

// The light version plays no sound of its own playlist: two clips say what it can.
const plays = ({ clip, player }) => player !== "light" || given.light.includes(clip);
const all = Object.keys(given.clips).flatMap((clip) => Object.keys(players).map((player) => ({ clip, player }))).filter(plays);
await Promise.all(Array.from({ length: atOnce }, async () => {
  for (let next; (next = all.shift());) {
    await test(`${next.clip} with ${next.player}`, (page) => play(page, next.player, next.clip));
  }
}));
await done();
