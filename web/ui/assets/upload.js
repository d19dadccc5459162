// Uploads what is dropped on the board, or chosen, by the tus protocol. An upload
// that was broken off goes on where it was when the same file is given again.
(() => {
  "use strict";
  const list = document.querySelector("#uploads"), drop = document.querySelector("#drop");
  if (!list || !window.tus?.isSupported) return;
  const size = (n) => n < 1048576 ? `${Math.ceil(n / 1024)} KiB` : n < 1073741824 ? `${(n / 1048576).toFixed(1)} MiB` : `${(n / 1073741824).toFixed(2)} GiB`;
  const element = (name, className, text) => {
    const e = document.createElement(name);
    if (className) e.className = className;
    if (text) e.textContent = text;
    return e;
  };

  const begin = async (file) => {
    const row = element("li", "upload"), state = element("span", "dim", "starting"), bar = element("progress"), button = element("button", "small", "Pause");
    bar.max = file.size || 1;
    bar.value = 0;
    bar.setAttribute("aria-label", `Upload of ${file.name}`);
    button.type = "button";
    row.append(element("span", "name", file.name), state, button, bar);
    list.append(row);
    let running = true, since = performance.now(), from = 0;
    const upload = new window.tus.Upload(file, {
      endpoint: list.dataset.endpoint,
      retryDelays: [0, 1000, 3000, 5000, 10000, 20000, 30000],
      metadata: { filename: file.name, type: file.type },
      removeFingerprintOnSuccess: true,
      onProgress: (sent, total) => {
        const rate = (sent - from) / ((performance.now() - since) / 1000 || 1);
        bar.value = sent;
        state.textContent = `${Math.floor(100 * sent / (total || 1))}% of ${size(total)}` +
          (sent > from && sent < total ? `, ${size(rate)}/s` : "");
      },
      onSuccess: () => {
        state.textContent = "uploaded";
        bar.value = bar.max;
        button.remove();
        row.dataset.done = "true";
        setTimeout(() => row.remove(), 8000);
      },
      onError: (e) => {
        running = false;
        button.textContent = "Go on";
        const status = e.originalResponse?.getStatus();
        state.textContent = status === 507 ? "the disk there is full" : status === 413 ? "it is too large" :
          status ? `refused (${status})` : "broken off; it goes on where it was";
      },
    });
    const start = async () => {
      const earlier = await upload.findPreviousUploads();
      if (earlier.length) upload.resumeFromPreviousUpload(earlier[0]);
      since = performance.now();
      from = bar.value;
      upload.start();
    };
    button.addEventListener("click", () => {
      running = !running;
      button.textContent = running ? "Pause" : "Go on";
      if (running) return start();
      state.textContent = "paused";
      upload.abort();
    });
    await start();
  };

  const files = (e) => [...(e.dataTransfer?.types ?? [])].includes("Files");
  let over = 0;
  addEventListener("dragenter", (e) => { if (files(e)) { e.preventDefault(); over++; drop.hidden = false; } });
  addEventListener("dragover", (e) => { if (files(e)) e.preventDefault(); });
  addEventListener("dragleave", (e) => { if (files(e) && --over <= 0) { over = 0; drop.hidden = true; } });
  addEventListener("drop", (e) => {
    if (!files(e)) return;
    e.preventDefault();
    over = 0;
    drop.hidden = true;
    [...e.dataTransfer.files].forEach(begin);
  });
  document.addEventListener("change", (e) => {
    if (!("upload" in e.target.dataset)) return;
    [...e.target.files].forEach(begin);
    e.target.value = "";
  });
  addEventListener("beforeunload", (e) => {
    if (list.querySelector(".upload:not([data-done])")) e.preventDefault();
  });
})();
