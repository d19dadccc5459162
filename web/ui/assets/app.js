// The scripts of the dashboard. Everything here improves something that also works
// without scripts.
(() => {
  "use strict";
  const root = document.documentElement, base = document.body.dataset.base;
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("js");

  // Times: the server renders absolute times, the same for all viewers. The script shows
  // them as ages.
  const span = (seconds) => {
    const s = Math.max(0, Math.round(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, "0")} s`;
    if (s < 172800) return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, "0")} m`;
    return `${Math.floor(s / 86400)} days`;
  };
  let clockOffset = 0; // of the browser's clock to the server's, in ms
  const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const showTimes = () => {
    const now = Date.now() - clockOffset;
    for (const t of all("time[datetime]")) {
      const at = Date.parse(t.dateTime), past = (now - at) / 1000;
      if ("age" in t.dataset) put(t, span(past));
      else if ("until" in t.dataset) put(t, past >= 0 ? "now" : `in ${span(-past)}`);
      else put(t, past < 5 ? "just now" : `${span(past)} ago`);
      const full = new Date(at).toLocaleString();
      if (t.dataset.kept !== full) { t.title = full; t.dataset.kept = full; }
    }
  };
  showTimes();
  setInterval(showTimes, 1000);

  const showMessage = (text, bad) => {
    const p = document.createElement("p");
    p.textContent = text;
    if (bad) p.className = "bad";
    $("#messages").append(p);
    setTimeout(() => p.remove(), bad ? 12000 : 6000);
  };
  setTimeout(() => all("#messages p").forEach((p) => p.remove()), 8000);

  // The stream. The button shows its state, connected, paused or stale, and since when. A
  // text selection pauses updates, too.
  const live = $("#live"), state = $("#live-state");
  if (live && state) follow();
  function follow() {
    let connection = null, paused = false, missed = false, pressed = false, stale = "", since = 0, lastHeard = Date.now(), hasStarted = false;
    let read = 0, late = false, swapping = false, lastRepair = 0;
    const clock = (at) => new Date(at).toLocaleTimeString();
    const setStale = (word, at = lastHeard) => {
      if (!stale) since = at;
      stale = word;
      show();
    };
    const show = () => {
      const [now, word, more] =
        paused ? ["paused", "paused", missed ? "updates waiting" : ""] :
        stale ? ["stale", stale, `since ${clock(since)}`] :
        late ? ["stale", "stale", `since ${clock(read)}`] :
        missed && isHeld() ? ["paused", "paused", pressed ? "" : "text is selected"] :
        hasStarted ? ["connected", "connected", Date.now() - read > 15000 && read ? `as of ${clock(read)}` : ""] : ["connecting", "connecting", ""];
      if (state.dataset.state !== now) state.dataset.state = now;
      put($("#live-word"), word);
      put($("#live-since"), more);
      state.title = stale === "signed out" ? "Sign in again" : paused ? "Resume updates (p)" : "Pause updates (p)";
      if (more) state.title = `${word}, ${more}. ${state.title}`;
    };
    const isHeld = () => {
      const s = getSelection();
      return pressed || (s && !s.isCollapsed && $("#main").contains(s.anchorNode));
    };
    const restart = () => { // the server then sends all missed changes
      missed = false;
      connection.lastEventId = "missed";
      connection.reader?.cancel();
    };
    const resume = () => {
      if (missed && connection && !paused && !isHeld()) restart();
      show();
    };
    const setClock = (at) => { // to the server's time
      clockOffset = Date.now() - at;
      showTimes();
    };
    const toggle = () => {
      if (stale === "signed out") return location.reload();
      paused = !paused; resume();
    };
    const fail = (status) => setStale(status === 401 || status === 403 ? "signed out" : status === 429 || status === 503 ? "too many pages" : "stale");
    // htmx does not reconnect a stream that never started.
    const retry = (e) => {
      if (hasStarted || connection) return;
      fail(e.detail.ctx?.response?.status);
      if (stale !== "signed out") setTimeout(() => window.htmx.ajax("GET", live.getAttribute("hx-sse:connect"), { source: live }), 2000 + 3000 * Math.random());
    };
    live.addEventListener("htmx:config:request", (e) => { e.detail.ctx.request.headers.Accept = "text/event-stream"; });
    live.addEventListener("htmx:error", retry);
    live.addEventListener("htmx:response:error", retry);
    state.addEventListener("click", toggle);
    live.addEventListener("htmx:sse:before:connection", (e) => {
      connection = e.detail.connection;
      if (stale === "signed out") connection.cancelled = true;
      if (hasStarted && !stale && document.visibilityState === "visible" && Date.now() - lastHeard > 2000) setStale("stale");
    });
    live.addEventListener("htmx:sse:before:message", (e) => {
      connection = e.detail.connection;
      lastHeard = Date.now();
      if (e.detail.message.event) return;
      if (paused || isHeld()) { e.detail.cancelled = true; missed = true; show(); }
    });
    live.addEventListener("htmx:sse:error", (e) => {
      if (swapping && connection) connection.lastEventId = "missed"; // the last update was not applied
      swapping = false;
      fail(e.detail.status);
    });
    // If the target of an update is missing, the page differs from what the server expects:
    // ask for a full update.
    live.addEventListener("htmx:before:swap", (e) => {
      swapping = true;
      if (e.detail.tasks?.every((t) => t.target) || Date.now() - lastRepair < 30000) return;
      swapping = false;
      lastRepair = Date.now();
      e.preventDefault();
      restart();
    });
    live.addEventListener("htmx:sse:close", () => setStale(stale || "stale"));
    live.addEventListener("open", (e) => {
      const data = JSON.parse(e.detail.data);
      hasStarted = true; stale = ""; late = false; read = 0; setClock(data.now); show();
      if (data.build !== document.body.dataset.build) showMessage("Cuelight was updated. Reload this page to get the new version.");
    });
    live.addEventListener("stale", () => setStale("stale", Date.now()));
    live.addEventListener("fresh", () => { stale = ""; show(); });
    live.addEventListener("ping", (e) => {
      const ping = JSON.parse(e.detail.data);
      setClock(ping.now);
      read = ping.read && ping.read + clockOffset; late = ping.late; show();
    });
    live.addEventListener("htmx:after:swap", () => { swapping = false; showTimes(); });
    document.addEventListener("selectionchange", resume);
    // Other buttons open a menu. The page may get no event when they are released.
    document.addEventListener("pointerdown", (e) => { if (e.button === 0) pressed = true; });
    const released = () => { pressed = false; setTimeout(resume); };
    for (const end of ["pointerup", "pointercancel", "dragend", "contextmenu"]) document.addEventListener(end, released);
    addEventListener("blur", released);
    setInterval(() => {
      if (!stale && hasStarted && Date.now() - lastHeard > 25000) setStale("stale");
    }, 1000);
    document.addEventListener("keydown", (e) => { if (e.key === "p" && isShortcut(e)) toggle(); });
    show();
  }

  // Confirmations open in a dialog.
  const dialog = $("#dialog"), help = $("#help");
  const openDialog = async (address) => {
    try {
      const answer = await fetch(address, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html"), question = $("#confirm", page);
      if (!question) return location.assign(address);
      dialog.replaceChildren(document.adoptNode(question));
      dialog.showModal();
      ($("input:not([type=hidden])", dialog) ?? $("button", dialog))?.focus();
    } catch { location.assign(address); }
  };
  dialog.addEventListener("click", (e) => {
    if (e.target === dialog || e.target.closest("[data-close]")) { e.preventDefault(); dialog.close(); }
  });
  const postForm = async (form, submitter) => {
    const buttons = all("button", form);
    buttons.forEach((b) => { b.disabled = true; });
    try {
      const data = new FormData(form, submitter);
      const answer = await fetch(form.action, {
        method: "POST", body: form.enctype === "multipart/form-data" ? data : new URLSearchParams(data), headers: { Accept: "application/json" },
      });
      if (answer.status === 401) return location.reload();
      const said = await answer.json();
      showMessage(said.text ?? said.detail ?? said.title ?? `The server answered with status ${answer.status}.`, !answer.ok);
      if (answer.ok && dialog.open) dialog.close();
    } catch {
      showMessage("The server did not answer. Check whether the action took effect.", true);
    } finally {
      buttons.forEach((b) => { b.disabled = false; });
    }
  };
  document.addEventListener("click", (e) => {
    const link = e.target.closest?.("a[data-dialog]");
    if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey && e.button === 0) { e.preventDefault(); openDialog(link.href); }
    const copy = e.target.closest?.("[data-copy]");
    if (copy) copyFrom(copy);
    if (e.target.closest?.("[data-help]")) help?.showModal();
  });
  // Plays a chapter in the frame of the player, which is a page of this server.
  document.addEventListener("click", (e) => {
    const chapter = e.target.closest?.("[data-seek]"), frame = chapter && $("iframe", chapter.closest(".player"));
    frame?.contentWindow.playFrom?.(Number(chapter.dataset.seek));
  });
  // The clipboard is available over TLS or on localhost only.
  const copyFrom = async (button) => {
    try {
      const text = button.dataset.copy;
      await navigator.clipboard.writeText(text.replace(/^(<iframe src=")?(?=\/)/, `$&${location.origin}`));
      showMessage("Copied.");
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      showMessage("The text is selected. Press Ctrl+C or ⌘C to copy it.");
    }
  };
  document.addEventListener("submit", (e) => {
    const form = e.target;
    if ("post" in form.dataset) { e.preventDefault(); postForm(form, e.submitter); }
    if ("dialogForm" in form.dataset) {
      e.preventDefault();
      openDialog(`${form.action}?${new URLSearchParams(new FormData(form, e.submitter))}`);
    }
    if ("themeForm" in form.dataset) { e.preventDefault(); nextTheme($("button", form)); }
  });
  document.addEventListener("formdata", (e) => { // leave empty filters out of the address
    if (e.target.method !== "get") return;
    for (const [name, value] of [...e.formData]) if (!value) e.formData.delete(name);
    if (!e.formData.has("stage")) e.formData.delete("status");
  });
  document.addEventListener("change", (e) => { if ("submit" in e.target.dataset) e.target.form.requestSubmit(); });

  const nextTheme = (button) => {
    const names = ["", "light", "dark"], name = names[(names.indexOf(root.dataset.theme ?? "") + 1) % 3];
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    document.cookie = `cuelight_theme=${name}; path=${base}/; max-age=34560000; samesite=lax`;
    $("use", button).setAttribute("href", `#i-${{ "": "auto", light: "sun", dark: "moon" }[name]}`);
    button.title = `Theme: ${name || "system"}`;
    button.setAttribute("aria-label", `Change theme (now: ${name || "system"})`);
  };

  // Keyboard shortcuts. Users of speech input can turn them off.
  const keys = $("[data-keys]"), keysSetting = "cuelight_keys";
  let keysOn = true;
  try { keysOn = localStorage.getItem(keysSetting) !== "off"; } catch { /* storage is not available */ }
  if (keys) keys.checked = keysOn;
  keys?.addEventListener("change", () => {
    keysOn = keys.checked;
    try { localStorage.setItem(keysSetting, keysOn ? "on" : "off"); } catch { /* only for this page */ }
  });
  function isShortcut(e) {
    return keysOn && !e.ctrlKey && !e.metaKey && !e.altKey && !$("dialog[open]") &&
      !e.target.closest?.("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]");
  }
  const currentRow = () => document.activeElement.closest("[data-row]");
  const focusRow = (row) => {
    ($("[data-open]", row) ?? row).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (e) => {
    if (!isShortcut(e)) return;
    if (e.key === "/") { const s = $("[data-search]"); if (s) { e.preventDefault(); s.focus(); s.select(); } }
    if (e.key === "?") help?.showModal();
    if (e.key === "j" || e.key === "k") moveRow(e.key === "j" ? 1 : -1);
    // On a page with rows, r only applies to the selected row.
    const within = currentRow() ?? ($("[data-row]") ? null : $("main"));
    if (e.key === "r" && within) $("[data-retry]", within)?.click();
  });
  const moveRow = (by) => {
    const rows = all("[data-row]"), at = rows.indexOf(currentRow());
    const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (row) focusRow(row);
  };
  // If the focused row disappears, the next one gets the focus.
  let candidates = [];
  live?.addEventListener("htmx:before:swap", () => {
    const row = currentRow(), rows = all("[data-row]"), at = rows.indexOf(row);
    candidates = row ? [row, ...rows.slice(at + 1), ...rows.slice(0, at).reverse()] : [];
  });
  live?.addEventListener("htmx:after:swap", () => {
    const next = candidates[0]?.isConnected || document.activeElement !== document.body ? null : candidates.find((r) => r.isConnected);
    candidates = [];
    if (next) focusRow(next);
  });
})();
