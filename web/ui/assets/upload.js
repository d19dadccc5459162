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

  // The server's own words for why it refuses something, where it gave any: a problem
  // after RFC 9457.
  const reason = (response) => {
    try {
      return JSON.parse(response.getBody()).detail ?? "";
    } catch {
      return "";
    }
  };

  // A browser has six connections to a place, of which the page needs some: what is
  // more than this waits.
  const atOnce = 2, queue = [];
  let running = 0;
  const next = () => {
    while (running < atOnce && queue.length) {
      running++;
      queue.shift()();
    }
  };

  const begin = (file) => {
    const row = element("li", "upload"), state = element("span", "dim"), bar = element("progress"), button = element("button", "small");
    const why = element("p", "why");
    why.setAttribute("role", "alert");
    bar.max = file.size || 1;
    bar.value = 0;
    bar.setAttribute("aria-label", `Upload of ${file.name}`);
    button.type = "button";
    row.append(element("span", "name", file.name), state, button, bar, why);
    list.append(row);
    let since = 0, from = 0;
    // It waits, runs or stands; what it is says the row.
    const be = (what, word, press) => {
      if (row.dataset.is === "running") { running--; setTimeout(next); }
      row.dataset.is = what;
      state.textContent = word;
      button.textContent = press;
    };
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
        be("done", "uploaded", "");
        bar.value = bar.max;
        button.remove();
        setTimeout(() => row.remove(), 8000);
      },
      onError: (e) => {
        const status = e.originalResponse?.getStatus();
        be("standing", status === 507 ? "the server’s disk is full" : status === 413 ? "the file is too large" :
          status ? `refused (${status})` : "interrupted; resume to continue", "Resume");
        why.textContent = reason(e.originalResponse);
      },
    });
    const start = async () => {
      row.dataset.is = "running"; // it was counted by who called
      state.textContent = "starting";
      why.textContent = "";
      const earlier = await upload.findPreviousUploads().catch(() => []);
      if (row.dataset.is !== "running") return; // somebody was quick
      if (earlier.length) upload.resumeFromPreviousUpload(earlier[0]);
      since = performance.now();
      from = bar.value;
      upload.start();
    };
    const wait = () => {
      be("waiting", "queued", "Pause");
      queue.push(start);
      next();
    };
    button.addEventListener("click", () => {
      if (row.dataset.is === "standing") return wait();
      if (row.dataset.is === "waiting") queue.splice(queue.indexOf(start), 1);
      be("standing", "paused", "Resume");
      upload.abort();
    });
    wait();
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
    const folder = (item) => item.webkitGetAsEntry?.()?.isDirectory;
    for (const item of e.dataTransfer.items) {
      const file = item.kind === "file" && !folder(item) && item.getAsFile();
      if (file) begin(file);
    }
  });
  document.addEventListener("change", (e) => {
    if (!("upload" in e.target.dataset)) return;
    [...e.target.files].forEach(begin);
    e.target.value = "";
  });
  addEventListener("beforeunload", (e) => {
    if (list.querySelector('.upload:not([data-is="done"])')) e.preventDefault();
  });
})();
