// Plays published videos with hls.js and dash.js, several at once,
// and waits until each says that it has ended. A video with captions is played once for each track, whose
// texts must be there with their times.
import { given, must, test, done } from "./browser.mjs";

const players = { hls: "/hls.js", dash: "/dash.js" };
const atOnce = 4;

// Seeks to ten random times, and requires a picture of that time. Then it loads the largest and the smallest size, and the
// video plays from the start, in any size. It runs in the page. Players that do both at once skip to the next segment now and then.
async function seek(seconds) {
  const video = document.querySelector("video"), times = [];
  let shown = 0; // the time of the last picture
  const watch = () => video.requestVideoFrameCallback((_, frame) => { shown = frame.mediaTime; watch(); });
  watch();
  const until = async (isTrue, what) => {
    for (const start = performance.now(); !isTrue(); await new Promise((done) => setTimeout(done, 50))) {
      if (performance.now() - start > 20000) throw new Error(`${what()}, after seeks to ${times}`);
    }
  };
  video.pause();
  for (let i = 0; i < 10; i++) {
    const at = Math.random() * Math.max(0, seconds - 0.1);
    times.push(at.toFixed(3));
    video.currentTime = at;
    await until(() => !video.seeking && video.readyState > 1, () => `the seek to ${at} s does not end`);
    // Frames of slide shows last two seconds.
    if (video.videoWidth) await until(() => shown < at + 0.1 && shown > at - 2.1, () => `at ${at} s there is the picture of ${shown} s`);
  }
  for (const size of ["largest", "smallest"]) {
    const folder = window.setSize(size); // undefined if there is one size
    const isLoaded = () => !folder || performance.getEntriesByType("resource").some((e) => e.name.includes(`/${folder}/seg-`));
    await until(isLoaded, () => `it does not load ${folder}`);
  }
  window.setSize("any");
  window.said = "";
  video.currentTime = 0;
  await video.play();
}

async function play(page, player, clip, track) {
  const seeks = given.seeks.includes(clip) && track === undefined;
  await page.goto(`${given.address}/blank`);
  await page.addScriptTag({ url: given.address + players[player] });
  await page.evaluate(([player, clip, rate, hold, track, codec, address]) => {
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
        if (size === "any" || list.length < 2) return undefined;
        const index = size === "largest" ? list.length - 1 : 0;
        dash.setRepresentationForTypeByIndex("video", index, true); // replaces what was loaded
        return `${list[index].height}p`;
      };
      dash.initialize(video, `${address}/manifest.mpd`, true);
      if (codec) {
        dash.on("streamInitialized", () => dash.setCurrentTrack(dash.getTracksFor("video").find((t) => t.codec.includes(codec))));
      }
      return;
    }
    const hls = new Hls();
    const wrong = ["bufferSeekOverHole", "bufferAppendError", "fragParsingError"];
    hls.on(Hls.Events.ERROR, (_, e) => { if (e.fatal || wrong.includes(e.details)) window.said ||= `error ${e.type} ${e.details}`; });
    window.setSize = (size) => {
      if (size === "any" || !(hls.levels[1]?.height > 0)) { hls.loadLevel = -1; return undefined; }
      const index = size === "largest" ? hls.levels.length - 1 : 0;
      hls.currentLevel = index; // replaces what was loaded
      return `${hls.levels[index].height}p`;
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
  }, [player, clip, given.rate, given.hold, track, given.codecs[clip], given.addresses[clip]]);
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
  // dash.js rarely forgets to say that a stream whose sound is longer than its picture has ended.
  const isAtEnd = player === "dash" && at >= length;
  must(said || isAtEnd, `no end; it stands at ${at.toFixed(3)} of ${length.toFixed(3)} s`);
  must((isAtEnd || said.startsWith("ended")) && at > given.clips[clip] - 0.15, `${said}; it lasts ${given.clips[clip]} s`);
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
