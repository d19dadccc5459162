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
  const play = async (button) => {
    const video = button.parentElement.querySelector("video"), source = video.dataset.hls;
    button.disabled = true;
    try {
      await load();
      if (window.Hls.isSupported()) {
        const hls = new window.Hls({ capLevelToPlayerSize: true });
        hls.on(window.Hls.Events.ERROR, (_, e) => {
          if (!e.fatal) return;
          if (e.type === window.Hls.ErrorTypes.MEDIA_ERROR) hls.recoverMediaError(); else hls.startLoad();
          video.dataset.trouble = e.details;
        });
        hls.loadSource(source);
        hls.attachMedia(video);
      } else {
        video.src = source; // where the browser can do it by itself
      }
      video.controls = true;
      button.remove();
      await video.play();
      video.focus();
    } catch (e) {
      button.disabled = false;
      video.dataset.trouble = String(e);
    }
  };
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.(".play");
    if (button) play(button);
  });
})();
