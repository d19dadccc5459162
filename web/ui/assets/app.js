// What the dashboard does in a browser that runs scripts. Everything here makes
// something nicer that works without it.
(() => {
  "use strict";
  const root = document.documentElement, base = document.body.dataset.base;
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("js");

  // Times: what the server writes is the same for everybody; here it becomes how
  // long ago that was.
  const span = (seconds) => {
    const s = Math.max(0, Math.round(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, "0")} s`;
    if (s < 172800) return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, "0")} m`;
    return `${Math.floor(s / 86400)} days`;
  };
  let ahead = 0; // of the server's clock is the browser's, in ms
  const put = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const tell = () => {
    const now = Date.now() - ahead;
    for (const t of all("time[datetime]")) {
      const at = Date.parse(t.dateTime), past = (now - at) / 1000;
      if ("age" in t.dataset) put(t, span(past));
      else if ("until" in t.dataset) put(t, past >= 0 ? "now" : `in ${span(-past)}`);
      else put(t, past < 5 ? "just now" : `${span(past)} ago`);
      const full = new Date(at).toLocaleString();
      if (t.dataset.kept !== full) { t.title = full; t.dataset.kept = full; }
    }
  };
  tell();
  setInterval(tell, 1000);

  const say = (text, bad) => {
    const p = document.createElement("p");
    p.textContent = text;
    if (bad) p.className = "bad";
    $("#messages").append(p);
    setTimeout(() => p.remove(), bad ? 12000 : 6000);
  };
  setTimeout(() => all("#messages p").forEach((p) => p.remove()), 8000);

  // The stream. Its state is connected, paused or stale; since when is told. A page
  // that is held still by who reads it says so, too.
  const live = $("#live"), state = $("#live-state");
  if (live && state) follow();
  function follow() {
    let connection = null, paused = false, missed = false, pressed = false, stale = "", since = 0, heard = Date.now(), greeted = false;
    let read = 0, late = false, swapping = false, mended = 0;
    const clock = (at) => new Date(at).toLocaleTimeString();
    const become = (word, at = heard) => {
      if (!stale) since = at;
      stale = word;
      show();
    };
    const show = () => {
      const [now, word, more] =
        paused ? ["paused", "paused", missed ? "updates waiting" : ""] :
        stale ? ["stale", stale, `since ${clock(since)}`] :
        late ? ["stale", "stale", `since ${clock(read)}`] :
        missed && reading() ? ["paused", "paused", pressed ? "" : "text is selected"] :
        greeted ? ["connected", "connected", Date.now() - read > 15000 && read ? `as of ${clock(read)}` : ""] : ["connecting", "connecting", ""];
      if (state.dataset.state !== now) state.dataset.state = now;
      put($("#live-word"), word);
      put($("#live-since"), more);
      state.title = stale === "signed out" ? "Sign in again" : paused ? "Resume updates (p)" : "Pause updates (p)";
      if (more) state.title = `${word}, ${more}. ${state.title}`;
    };
    const reading = () => {
      const s = getSelection();
      return pressed || (s && !s.isCollapsed && $("#main").contains(s.anchorNode));
    };
    const anew = () => { // whatever was missed is sent when the stream begins anew
      missed = false;
      connection.lastEventId = "missed";
      connection.reader?.cancel();
    };
    const again = () => {
      if (missed && connection && !paused && !reading()) anew();
      show();
    };
    const told = (at) => { // by the server's clock
      ahead = Date.now() - at;
      tell();
    };
    const toggle = () => {
      if (stale === "signed out") return location.reload();
      paused = !paused; again();
    };
    const fail = (status) => become(status === 401 || status === 403 ? "signed out" : status === 429 || status === 503 ? "too many pages" : "stale");
    // A page whose stream never began is none that htmx would begin anew.
    const retry = (e) => {
      if (greeted || connection) return;
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
      if (greeted && !stale && document.visibilityState === "visible" && Date.now() - heard > 2000) become("stale");
    });
    live.addEventListener("htmx:sse:before:message", (e) => {
      connection = e.detail.connection;
      heard = Date.now();
      if (e.detail.message.event) return;
      if (paused || reading()) { e.detail.cancelled = true; missed = true; show(); }
    });
    live.addEventListener("htmx:sse:error", (e) => {
      if (swapping && connection) connection.lastEventId = "missed"; // what came was not put in place
      swapping = false;
      fail(e.detail.status);
    });
    // What is to be changed must be there: else the page is not what the server takes
    // it for, and everything is asked for.
    live.addEventListener("htmx:before:swap", (e) => {
      swapping = true;
      if (e.detail.tasks?.every((t) => t.target) || Date.now() - mended < 30000) return;
      swapping = false;
      mended = Date.now();
      e.preventDefault();
      anew();
    });
    live.addEventListener("htmx:sse:close", () => become(stale || "stale"));
    live.addEventListener("hello", (e) => {
      const hello = JSON.parse(e.detail.data);
      greeted = true; stale = ""; late = false; read = 0; told(hello.now); show();
      if (hello.build !== document.body.dataset.build) say("Cuelight was updated. Reload this page to get the new version.");
    });
    live.addEventListener("stale", () => become("stale", Date.now()));
    live.addEventListener("fresh", () => { stale = ""; show(); });
    live.addEventListener("beat", (e) => {
      const beat = JSON.parse(e.detail.data);
      told(beat.now);
      read = beat.read && beat.read + ahead; late = beat.late; show();
    });
    live.addEventListener("htmx:after:swap", () => { swapping = false; tell(); });
    document.addEventListener("selectionchange", again);
    // A press with another button than the first opens a menu, and may have no end
    // that a page is told of.
    document.addEventListener("pointerdown", (e) => { if (e.button === 0) pressed = true; });
    const released = () => { pressed = false; setTimeout(again); };
    for (const end of ["pointerup", "pointercancel", "dragend", "contextmenu"]) document.addEventListener(end, released);
    addEventListener("blur", released);
    setInterval(() => {
      if (!stale && greeted && Date.now() - heard > 25000) become("stale");
    }, 1000);
    document.addEventListener("keydown", (e) => { if (e.key === "p" && plain(e)) toggle(); });
    show();
  }

  // Questions become dialogs.
  const dialog = $("#dialog"), help = $("#help");
  const ask = async (address) => {
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
  const act = async (form, submitter) => {
    const buttons = all("button", form);
    buttons.forEach((b) => { b.disabled = true; });
    try {
      const answer = await fetch(form.action, {
        method: "POST", body: new URLSearchParams(new FormData(form, submitter)), headers: { Accept: "application/json" },
      });
      if (answer.status === 401) return location.reload();
      const said = await answer.json();
      say(said.text ?? said.detail ?? said.title ?? `The server answered with status ${answer.status}.`, !answer.ok);
      if (answer.ok && dialog.open) dialog.close();
    } catch {
      say("The server did not answer. Check whether the action took effect.", true);
    } finally {
      buttons.forEach((b) => { b.disabled = false; });
    }
  };
  document.addEventListener("click", (e) => {
    const link = e.target.closest?.("a[data-dialog]");
    if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey && e.button === 0) { e.preventDefault(); ask(link.href); }
    const copy = e.target.closest?.("[data-copy]");
    if (copy) copyFrom(copy);
    if (e.target.closest?.("[data-help]")) help?.showModal();
  });
  // The clipboard is for pages that came by TLS or from this machine.
  const copyFrom = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      say("Copied.");
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      say("The command is selected. Press Ctrl+C or ⌘C to copy it.");
    }
  };
  document.addEventListener("submit", (e) => {
    const form = e.target;
    if ("post" in form.dataset) { e.preventDefault(); act(form, e.submitter); }
    if ("dialogForm" in form.dataset) {
      e.preventDefault();
      ask(`${form.action}?${new URLSearchParams(new FormData(form, e.submitter))}`);
    }
    if ("themeForm" in form.dataset) { e.preventDefault(); nextTheme($("button", form)); }
  });
  document.addEventListener("formdata", (e) => { // what is not asked for does not stand in the address
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

  // Keys. Who speaks to the browser, or whose hand is not steady, can have them off.
  const keys = $("[data-keys]"), kept = "cuelight_keys";
  let listens = true;
  try { listens = localStorage.getItem(kept) !== "off"; } catch { /* it is kept for nobody */ }
  if (keys) keys.checked = listens;
  keys?.addEventListener("change", () => {
    listens = keys.checked;
    try { localStorage.setItem(kept, listens ? "on" : "off"); } catch { /* until the next page */ }
  });
  function plain(e) {
    return listens && !e.ctrlKey && !e.metaKey && !e.altKey && !$("dialog[open]") &&
      !e.target.closest?.("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]");
  }
  const rowAt = () => document.activeElement.closest("[data-row]");
  const goTo = (row) => {
    ($("[data-open]", row) ?? row).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (e) => {
    if (!plain(e)) return;
    if (e.key === "/") { const s = $("[data-search]"); if (s) { e.preventDefault(); s.focus(); s.select(); } }
    if (e.key === "?") help?.showModal();
    if (e.key === "j" || e.key === "k") step(e.key === "j" ? 1 : -1);
    // Where there are rows it is for the one that was chosen, and for none but that.
    const within = rowAt() ?? ($("[data-row]") ? null : $("main"));
    if (e.key === "r" && within) $("[data-retry]", within)?.click();
  });
  const step = (by) => {
    const rows = all("[data-row]"), at = rows.indexOf(rowAt());
    const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (row) goTo(row);
  };
  // The row that has the focus may go: then the next one has it.
  let others = [];
  live?.addEventListener("htmx:before:swap", () => {
    const row = rowAt(), rows = all("[data-row]"), at = rows.indexOf(row);
    others = row ? [row, ...rows.slice(at + 1), ...rows.slice(0, at).reverse()] : [];
  });
  live?.addEventListener("htmx:after:swap", () => {
    const next = others[0]?.isConnected || document.activeElement !== document.body ? null : others.find((r) => r.isConnected);
    others = [];
    if (next) goTo(next);
  });
})();
