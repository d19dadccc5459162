// Plays a published video with hls.js, and gives the controls of media-chrome the lists of sizes and languages, which
// the video element of most browsers does not have.
(() => {
  "use strict";
  const video = document.querySelector("video"), alert = document.querySelector("[role=alert]"), source = video.dataset.hls;
  const giveUp = (why) => {
    alert.textContent = `The video cannot be played. ${why}`;
    alert.hidden = false;
  };
  // Plays from a time on, in seconds. The page that has this one in a frame may call it if it is of the same server.
  window.playFrom = (seconds) => {
    video.currentTime = seconds;
    video.play().catch(() => {}); // the browser wants a click first
  };
  // Chapters and storyboard are loaded. As default tracks they would make Chromium show captions, too.
  for (const t of video.textTracks) t.mode = "hidden";
  // media-chrome says whether captions are on, which the role of its button does not allow.
  customElements.whenDefined("media-captions-button").then(() => {
    document.querySelector("media-captions-button").setAttribute("role", "switch");
  });
  const start = Number(new URLSearchParams(location.search).get("t")) || 0;
  if (!window.Hls?.isSupported()) {
    video.onerror = () => giveUp("This browser does not support it, or it was deleted.");
    video.src = start ? `${source}#t=${start}` : source; // the browser plays HLS itself
    return;
  }
  // list returns an array that sends events, as media-chrome reads it.
  const list = () => {
    const bus = new EventTarget(), array = [];
    for (const name of ["addEventListener", "removeEventListener", "dispatchEvent"]) array[name] = bus[name].bind(bus);
    return array;
  };
  const hls = new window.Hls({ autoStartLoad: false, capLevelToPlayerSize: true, startPosition: start });
  const sizes = list(), languages = list();
  let size = -1; // of sizes; -1: chosen by the player
  Object.defineProperty(sizes, "selectedIndex", { get: () => size, set: (index) => {
    size = index;
    hls.nextLevel = index < 0 ? -1 : sizes[index].level;
    sizes.dispatchEvent(new Event("change"));
  } });
  Object.defineProperty(video, "videoRenditions", { value: sizes });
  Object.defineProperty(video, "audioTracks", { value: languages, configurable: true });
  const { Events, ErrorTypes } = window.Hls;
  hls.on(Events.MANIFEST_PARSED, () => {
    for (const [level, l] of hls.levels.entries()) {
      if (!l.height || sizes.some((s) => s.height === l.height)) continue; // of another codec
      sizes.push({ id: `${level}`, level, width: l.width, height: l.height, bitrate: l.bitrate });
      sizes.dispatchEvent(new Event("addrendition"));
    }
  });
  hls.on(Events.AUDIO_TRACKS_UPDATED, (_, { audioTracks }) => {
    languages.length = 0;
    for (const [index, track] of audioTracks.entries()) {
      const language = { id: `${index}`, kind: track.default ? "main" : "alternative", label: track.name, language: track.lang ?? "" };
      Object.defineProperty(language, "enabled", { enumerable: true, get: () => hls.audioTrack === index, set: (on) => {
        if (on) hls.audioTrack = index;
      } });
      languages.push(language);
    }
    languages.dispatchEvent(new Event("addtrack"));
  });
  hls.on(Events.AUDIO_TRACK_SWITCHED, () => languages.dispatchEvent(new Event("change")));
  // Playback may continue after a frame that cannot be decoded, and a segment may load later.
  const tries = 2;
  let decoded = 0, fetched = 0;
  hls.on(Events.ERROR, (_, e) => {
    if (!e.fatal) return;
    if (e.type === ErrorTypes.MEDIA_ERROR && decoded++ < tries) return hls.recoverMediaError();
    if (e.type === ErrorTypes.NETWORK_ERROR && !/^manifest/.test(e.details) && fetched++ < tries) return hls.startLoad();
    hls.destroy();
    giveUp(e.response?.code === 403 ? "Its address has expired." : e.response?.code === 404 ? "It was deleted or replaced." :
      e.type === ErrorTypes.NETWORK_ERROR ? "The server did not answer." : "This browser does not support it.");
  });
  const load = () => hls.startLoad(start || -1);
  video.addEventListener("play", load, { once: true });
  video.addEventListener("seeking", load, { once: true });
  hls.loadSource(source);
  hls.attachMedia(video);
})();
