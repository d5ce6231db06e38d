// The pages' part beyond htmx: dialogs, copying, times that go on, and the state of the connection.
// Without this file every page still works.
(() => {
  "use strict";
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Dialogs: htmx has put a form into the dialog's body.
  const dialog = one("#dialog");
  const body = one("#dialog-body");
  document.addEventListener("htmx:after:swap", (event) => {
    const target = event.detail?.ctx?.target;
    if (dialog && (target === body || target === "#dialog-body") && !dialog.open) {
      dialog.setAttribute("aria-labelledby", "dialog-title");
      dialog.showModal();
    }
    prepare();
  });
  dialog?.addEventListener("close", () => {
    body.replaceChildren();
    dialog.removeAttribute("aria-labelledby");
  });
  // A press on the backdrop is on the dialog itself.
  dialog?.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.addEventListener("click", (event) => {
    const closes = event.target.closest?.("[data-close]");
    if (closes && dialog?.contains(closes)) {
      event.preventDefault();
      dialog.close();
    }
  });

  // A form is sent once.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "1";
    for (const button of all("button", form)) button.setAttribute("aria-busy", "true");
  });
  addEventListener("pageshow", () => { for (const form of all("form[data-sent]")) delete form.dataset.sent; });

  // The menu closes as menus do.
  const menu = one(".menu");
  document.addEventListener("click", (event) => { if (menu?.open && !menu.contains(event.target)) menu.open = false; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && menu?.open) {
      menu.open = false;
      one("summary", menu).focus();
    }
  });

  // Copying.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    const text = one(button.dataset.copy)?.textContent ?? "";
    const label = button.firstChild;
    const said = label.nodeValue;
    try {
      await navigator.clipboard.writeText(text.trim());
      label.nodeValue = "Copied";
    } catch {
      getSelection().selectAllChildren(one(button.dataset.copy));
      label.nodeValue = "Press Ctrl+C";
    }
    setTimeout(() => { label.nodeValue = said; }, 2000);
  });

  // Times, in the words of the server.
  const ago = (seconds) => {
    const minute = 60, hour = 3600, day = 86400;
    if (seconds < 5) return "just now";
    if (seconds < minute) return `${seconds} sec ago`;
    if (seconds < hour) return `${Math.floor(seconds / minute)} min ago`;
    if (seconds < 2 * hour) return "1 hour ago";
    if (seconds < day) return `${Math.floor(seconds / hour)} hours ago`;
    if (seconds < 2 * day) return "1 day ago";
    return `${Math.floor(seconds / day)} days ago`;
  };
  const left = (seconds) => {
    if (seconds < 60) return `${Math.max(seconds, 0)} s`;
    return seconds < 5400 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3600)} h`;
  };
  const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const tick = () => {
    const now = Date.now();
    const since = (text) => Math.max(0, Math.floor((now - Date.parse(text)) / 1000));
    for (const time of all("time")) {
      const ahead = time.closest("[data-until]");
      // The end of a token's time, for example.
      if (!ahead && Date.parse(time.dateTime) - now > 60000) continue;
      say(time, ahead ? left(Math.floor((Date.parse(time.dateTime) - now) / 1000)) : ago(since(time.dateTime)));
    }
    for (const element of all("[data-since]")) {
      const seconds = since(element.dataset.since);
      say(element, seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`);
    }
  };
  const prepare = () => {
    for (const button of all("[data-copy][hidden]")) button.hidden = false;
    tick();
  };
  setInterval(tick, 1000);

  // The live part: a lost connection says so, and catches up.
  const live = one("#live");
  const offline = one("#offline");
  if (live) {
    let shown;
    const lost = (event) => {
      if (event.detail?.status === 401 || event.detail?.ctx?.response?.status === 401) return location.reload();
      // A server that restarts is back at once: only what lasts is said.
      shown ??= setTimeout(() => { offline.hidden = false; }, 1500);
    };
    const found = () => {
      clearTimeout(shown);
      shown = undefined;
      offline.hidden = true;
    };
    live.addEventListener("htmx:sse:error", lost);
    live.addEventListener("htmx:sse:before:connection", (event) => { if (event.detail.connection.attempt > 1) lost(event); });
    live.addEventListener("htmx:sse:after:connection", found);
    // The first connection is not repeated by htmx itself.
    const again = (event) => {
      lost(event);
      setTimeout(() => live.dispatchEvent(new Event("reconnect")), 2000);
    };
    live.addEventListener("htmx:error", again);
    live.addEventListener("htmx:response:error", again);
    live.addEventListener("htmx:sse:close", (event) => { if (event.detail.reason === "ended") again(event); });
    addEventListener("online", () => live.dispatchEvent(new Event("reconnect")));
  }
  prepare();
})();
