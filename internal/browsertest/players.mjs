// Plays published videos with hls.js and dash.js, several at once,
// and waits until each says that it has ended. A video with captions is played once for each track, whose
// texts must be there with their times.
import { given, must, test, done } from "./browser.mjs";

const players = { hls: "/hls.js", dash: "/dash.js" };
const atOnce = 4;

// Seeks to random times, with the largest and the smallest size in turn, and requires a picture of that time.
// Then the video plays from the start, in any size. It runs in the page.
async function seek(seconds) {
  const video = document.querySelector("video"), times = [];
  const within = (promise, what) => Promise.race([promise, new Promise((_, fail) => setTimeout(fail, 20000, new Error(what)))]);
  let sizes = 0, shown = 0; // the time of the last picture
  const watch = () => video.requestVideoFrameCallback((_, frame) => { shown = frame.mediaTime; watch(); });
  watch();
  video.pause();
  for (let i = 0; i < 10; i++) {
    const at = Math.random() * Math.max(0, seconds - 0.1);
    times.push(at.toFixed(3));
    sizes = window.setSize(i % 2 ? "smallest" : "largest");
    const sought = new Promise((done) => video.addEventListener("seeked", done, { once: true }));
    video.currentTime = at;
    await within(sought, `the seek to ${at} s does not end, after those to ${times}`);
    if (!video.videoWidth) continue;
    // Frames of slide shows last two seconds.
    for (let wait = 0; shown > at + 0.1 || shown < at - 2.1; wait++) {
      if (wait > 100) throw new Error(`at ${at} s there is the picture of ${shown} s, after seeks to ${times}`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }
  const loaded = performance.getEntriesByType("resource").map((e) => e.name.match(/(\d+p)\/seg-/)?.[1]).filter(Boolean);
  if (sizes > 1 && new Set(loaded).size < 2) throw new Error(`of ${sizes} sizes it loaded only ${loaded[0]}`);
  window.setSize("any");
  window.said = "";
  video.currentTime = 0;
  await video.play();
}

async function play(page, player, clip, track) {
  const seeks = given.seeks.includes(clip) && track === undefined;
  await page.goto(`${given.address}/blank`);
  await page.addScriptTag({ url: given.address + players[player] });
  await page.evaluate(([player, clip, rate, hold, track, codec, address, seeks]) => {
    const video = document.body.appendChild(document.createElement("video"));
    video.muted = video.autoplay = true;
    window.said = "";
    video.onended = () => window.said ||= `ended at ${(window.endedAt = video.currentTime).toFixed(3)} s`;
    video.onerror = () => window.said ||= `error ${video.error.message}`;
    video.onplaying = () => video.playbackRate = rate;
    // dash.js has only the cues around the position, and looks at that now and then.
    window.cues = {};
    video.ontimeupdate = () => {
      for (const t of video.textTracks) {
        if (t.mode === "disabled") continue;
        for (const c of t.cues) {
          const cues = window.cues[t.language] ??= new Set();
          cues.add([c.startTime.toFixed(2), c.endTime.toFixed(2), c.text].join(" "));
        }
      }
    };
    if (hold) video.addEventListener("playing", async () => {
      video.pause();
      await fetch("/hold");
      video.play();
    }, { once: true });
    if (player === "dash") {
      const dash = dashjs.MediaPlayer().create();
      dash.updateSettings({ streaming: {
        liveCatchup: { enabled: false }, ...track !== undefined && { buffer: { bufferPruningInterval: 0.1, bufferToKeep: 80 } },
      } });
      dash.on("error", (e) => window.said ||= `error ${e.error.message}`);
      if (track !== undefined) {
        dash.on("streamInitialized", () => { dash.enableText(true); dash.setTextTrack(track); });
      }
      window.setSize = (size) => {
        const list = dash.getRepresentationsByType("video");
        dash.updateSettings({ streaming: { abr: { autoSwitchBitrate: { video: size === "any" } } } });
        if (size !== "any" && list.length > 1) dash.setRepresentationForTypeByIndex("video", size === "largest" ? list.length - 1 : 0);
        return list.length;
      };
      dash.initialize(video, `${address}/manifest.mpd`, true);
      if (codec) {
        dash.on("streamInitialized", () => dash.setCurrentTrack(dash.getTracksFor("video").find((t) => t.codec.includes(codec))));
      }
      return;
    }
    const hls = new Hls(seeks ? { maxBufferLength: 6, backBufferLength: 0 } : {}); // so that it loads again
    const wrong = ["bufferSeekOverHole", "bufferAppendError", "fragParsingError"];
    hls.on(Hls.Events.ERROR, (_, e) => { if (e.fatal || wrong.includes(e.details)) window.said ||= `error ${e.type} ${e.details}`; });
    window.setSize = (size) => {
      hls.loadLevel = { any: -1, largest: hls.levels.length - 1, smallest: 0 }[size];
      return new Set(hls.levels.map((l) => l.height)).size;
    };
    if (track !== undefined) {
      hls.once(Hls.Events.SUBTITLE_TRACKS_UPDATED, () => setTimeout(() => {
        hls.subtitleDisplay = true;
        hls.subtitleTrack = track;
      }));
    }
    if (codec) {
      hls.once(Hls.Events.MANIFEST_PARSED, () => hls.loadLevel = hls.levels.findIndex((l) => l.videoCodec.startsWith(codec)));
    }
    hls.loadSource(`${address}/master.m3u8`);
    hls.attachMedia(video);
  }, [player, clip, given.rate, given.hold, track, given.codecs[clip], given.addresses[clip], seeks]);
  if (seeks) {
    await page.waitForFunction(() => window.said || document.querySelector("video").currentTime > 0, null, { timeout: given.within });
    await page.evaluate(seek, given.clips[clip]);
  }
  await page.waitForFunction(() => window.said, null, { timeout: given.within }).catch(() => {});
  if (track !== undefined) await checkCaptions(page, player, given.captions[clip][track]);
  const { said, at, length, hasPicture, isListed } = await page.evaluate(async (master) => {
    const v = document.querySelector("video");
    const isListed = (await (await fetch(master)).text()).includes("RESOLUTION=");
    return { said: window.said, at: window.endedAt ?? v.currentTime, length: v.duration, hasPicture: v.videoWidth > 0, isListed };
  }, `${given.addresses[clip]}/master.m3u8`);
  must(hasPicture === isListed, `it ${hasPicture ? "has a" : "has no"} picture`);
  if (given.codecs[clip]) {
    const played = await page.evaluate(() => performance.getEntriesByType("resource").map((e) => e.name).filter((n) => /seg-/.test(n)));
    const folder = { av01: "-av1/", avc1: "p/" }[given.codecs[clip]];
    must(played.length > 1 && played.slice(-1)[0].includes(folder), `segments ${played}; want those of ${folder}`);
  }
  must(said, `no end; it stands at ${at.toFixed(3)} of ${length.toFixed(3)} s`);
  must(said.startsWith("ended") && at > given.clips[clip] - 0.15, `${said}; it lasts ${given.clips[clip]} s`);
}

async function checkCaptions(page, player, want) {
  const { cues, shown } = await page.evaluate((language) => ({
    cues: [...window.cues[language] ?? []],
    shown: [...document.querySelector("video").textTracks].filter((t) => t.mode === "showing")
      .map((t) => [t.language, t.label]),
  }), want.language);
  must(JSON.stringify(cues) === JSON.stringify(want.cues), `captions ${JSON.stringify(cues)}; want ${JSON.stringify(want)}`);
  const isShown = shown.length === 1 && shown[0][0] === want.language && (player === "dash" || shown[0][1] === want.label);
  must(isShown, `tracks shown: ${JSON.stringify(shown)}; want ${want.label}`);
}

const plays = ({ clip, player }) => player !== "dash" || given.addresses[clip].startsWith("/");
const tracks = (clip) => given.captions[clip]?.map((_, i) => i) ?? [undefined];
const all = Object.keys(given.clips).flatMap((clip) => Object.keys(players).flatMap((player) =>
  tracks(clip).map((track) => ({ clip, player, track })))).filter(plays);
await Promise.all(Array.from({ length: atOnce }, async () => {
  for (let next; (next = all.shift());) {
    const name = `${next.clip} with ${next.player}` + (next.track === undefined ? "" : `, captions ${next.track}`);
    await test(name, (page) => play(page, next.player, next.clip, next.track));
  }
}));
await done();
