// Plays the published video. It loads hls.js when the user presses play.
(() => {
  "use strict";
  const address = document.currentScript.dataset.player;
  const load = () => new Promise((done, failed) => {
    if (window.Hls) return done();
    const script = document.createElement("script");
    script.src = address;
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
  // Retries before the player gives up: playback may continue after a frame that cannot be
  // decoded, and a segment may load later. Without a playlist there is nothing to retry.
  const tries = 2;
  const watch = (hls, giveUp) => {
    const { Events, ErrorTypes } = window.Hls;
    let decoded = 0, fetched = 0;
    hls.on(Events.ERROR, (_, e) => {
      if (!e.fatal) return;
      if (e.type === ErrorTypes.MEDIA_ERROR && decoded++ < tries) hls.recoverMediaError();
      else if (e.type === ErrorTypes.NETWORK_ERROR && !/^manifest/.test(e.details) && fetched++ < tries) hls.startLoad();
      else giveUp(e.response?.code === 401 ? "Sign in again." : e.response?.code === 404 ? "It was deleted or replaced." :
        e.type === ErrorTypes.NETWORK_ERROR ? "The server did not answer." : "This browser does not support it.");
    });
  };
  const play = async (button) => {
    if (button.disabled) return; // it starts
    const screen = button.parentElement, video = screen.querySelector("video"), source = video.dataset.hls;
    screen.querySelector("[role=alert]")?.remove();
    button.disabled = true;
    let hls = null, over = false;
    const giveUp = (why) => {
      if (over) return;
      over = true;
      hls?.destroy();
      video.controls = false;
      const alert = document.createElement("p");
      alert.setAttribute("role", "alert");
      alert.textContent = `The video cannot be played. ${why}`;
      button.disabled = button.hidden = false;
      screen.append(alert);
    };
    try {
      await load();
      if (window.Hls.isSupported()) {
        hls = new window.Hls({ capLevelToPlayerSize: true });
        watch(hls, giveUp);
        hls.loadSource(source);
        hls.attachMedia(video);
      } else {
        video.onerror = () => giveUp("This browser does not support it, or it was deleted.");
        video.src = source; // the browser plays HLS itself
      }
      video.controls = true;
      button.hidden = true;
      if (!document.activeElement.closest(".chapters")) video.focus();
      await video.play();
    } catch (e) {
      // AbortError: paused before it started. NotAllowedError: the browser blocks autoplay,
      // and the user starts the video with its controls.
      if (e?.name !== "AbortError" && e?.name !== "NotAllowedError") giveUp("The player could not be loaded.");
    }
  };
  // Plays a chapter from its start.
  const seek = async (chapter) => {
    const player = chapter.closest(".player"), video = player.querySelector("video");
    if (!video.controls) await play(player.querySelector(".play"));
    if (!video.controls) return; // it cannot be played
    video.currentTime = Number(chapter.dataset.seek);
    video.play().catch(() => {}); // the browser blocks autoplay
  };
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.(".play, [data-seek]");
    if (button) (button.dataset.seek ? seek : play)(button);
  });
  document.addEventListener("timeupdate", (e) => {
    const chapters = [...e.target.closest(".player")?.querySelectorAll("[data-seek]") ?? []];
    const current = chapters.findLast((c) => Number(c.dataset.seek) < e.target.currentTime + 0.01);
    for (const c of chapters) c.ariaCurrent = c === current;
  }, true);
})();
