// Uploads dropped or selected files with the tus protocol. An interrupted upload continues
// when the user selects the same file again.
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

  // The server's explanation of an error, if any: problem details of RFC 9457.
  const reason = (response) => {
    try {
      return JSON.parse(response.getBody()).detail ?? "";
    } catch {
      return "";
    }
  };

  // A browser opens six connections to a server, and the page needs some of them. Further
  // uploads wait in a queue.
  const maxRunning = 2, queue = [];
  let running = 0;
  const next = () => {
    while (running < maxRunning && queue.length) {
      running++;
      queue.shift()();
    }
  };

  const profile = document.querySelector("select[data-profile]");

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
    // An upload is waiting, running, stopped or done; data-state has its state.
    const setState = (name, text, action) => {
      if (row.dataset.state === "running") { running--; setTimeout(next); }
      row.dataset.state = name;
      state.textContent = text;
      button.textContent = action;
    };
    const upload = new window.tus.Upload(file, {
      endpoint: list.dataset.endpoint,
      retryDelays: [0, 1000, 3000, 5000, 10000, 20000, 30000],
      metadata: {
        filename: file.name, type: file.type,
        ...(profile?.value ? { params: JSON.stringify({ profile: profile.value }) } : {}),
      },
      removeFingerprintOnSuccess: true,
      onProgress: (sent, total) => {
        const rate = (sent - from) / ((performance.now() - since) / 1000 || 1);
        bar.value = sent;
        state.textContent = `${Math.floor(100 * sent / (total || 1))}% of ${size(total)}` +
          (sent > from && sent < total ? `, ${size(rate)}/s` : "");
      },
      onSuccess: () => {
        setState("done", "uploaded", "");
        bar.value = bar.max;
        button.remove();
        setTimeout(() => row.remove(), 8000);
      },
      onError: (e) => {
        const status = e.originalResponse?.getStatus();
        setState("stopped", status === 507 ? "the server’s disk is full" : status === 413 ? "the file is too large" :
          status ? `refused (${status})` : "interrupted; resume to continue", "Resume");
        why.textContent = reason(e.originalResponse);
      },
    });
    const start = async () => {
      row.dataset.state = "running"; // the caller has counted it
      state.textContent = "starting";
      why.textContent = "";
      const earlier = await upload.findPreviousUploads().catch(() => []);
      if (row.dataset.state !== "running") return; // paused meanwhile
      if (earlier.length) upload.resumeFromPreviousUpload(earlier[0]);
      since = performance.now();
      from = bar.value;
      upload.start();
    };
    const wait = () => {
      setState("waiting", "queued", "Pause");
      queue.push(start);
      next();
    };
    button.addEventListener("click", () => {
      if (row.dataset.state === "stopped") return wait();
      if (row.dataset.state === "waiting") queue.splice(queue.indexOf(start), 1);
      setState("stopped", "paused", "Resume");
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
    if (list.querySelector('.upload:not([data-state="done"])')) e.preventDefault();
  });
})();
