// Plays the published video. hls.js is fetched only when somebody presses play.
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
  // What is tried before it is given up: a picture that cannot be decoded may go on
  // behind it, a segment may come yet. Without a playlist there is nothing to try.
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
    const screen = button.parentElement, video = screen.querySelector("video"), source = video.dataset.hls;
    screen.querySelector("[role=alert]")?.remove();
    button.disabled = true;
    let hls = null, over = false;
    const giveUp = (why) => {
      if (over) return;
      over = true;
      hls?.destroy();
      video.controls = false;
      const said = document.createElement("p");
      said.setAttribute("role", "alert");
      said.textContent = `The video cannot be played. ${why}`;
      button.disabled = button.hidden = false;
      screen.append(said);
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
        video.src = source; // where the browser can do it by itself
      }
      video.controls = true;
      button.hidden = true;
      video.focus();
      await video.play();
    } catch (e) {
      // What was paused before it began has begun all the same, and what the browser
      // does not begin by itself who looks does.
      if (e?.name !== "AbortError" && e?.name !== "NotAllowedError") giveUp("The player could not be loaded.");
    }
  };
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.(".play");
    if (button) play(button);
  });
})();
