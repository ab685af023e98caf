// Dialogs and notes. The browser's <dialog> traps the focus, closes with Esc, and restores the focus.

import { el, show } from "./dom.js";

/** Open a dialog; `build(close)` returns its content. Resolves to the value passed to `close`, undefined for Esc. */
export function open(title, build, attributes = {}) {
  return new Promise((resolve) => {
    let result;
    const close = (value) => {
      result = value;
      dialog.close();
    };
    const heading = el("h2", { id: `d${++open.count}` }, title);
    const away = el("button", { type: "button", class: "tool", "aria-label": "Close", onclick: () => close() }, "✕");
    const dialog = el(
      "dialog",
      { "aria-labelledby": heading.id, ...attributes },
      el("div", { class: "dialog-head" }, heading, away),
      build(close),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    dialog.addEventListener("click", (event) => {
      // A click on the backdrop targets the dialog itself.
      if (event.target === dialog) close();
    });
    document.body.append(dialog);
    dialog.showModal();
    (dialog.querySelector("[autofocus]") ?? dialog.querySelector("input, select, textarea, button")).focus();
  });
}
open.count = 0;

/** Confirm something that cannot be undone; the safe answer has the focus. */
export function sure(title, text, yes) {
  return open(
    title,
    (close) => [
      el("p", {}, text),
      el(
        "div",
        { class: "actions" },
        el("button", { type: "button", class: "plain", autofocus: true, onclick: () => close(false) }, "Cancel"),
        el("button", { type: "button", class: "danger", onclick: () => close(true) }, yes),
      ),
    ],
    { role: "alertdialog", class: "small" },
  );
}

/** A form in a dialog. Errors thrown by `work(button)` are shown in it. Resolves to what `work` returns. */
export function form(title, parts, yes, work, attributes = {}) {
  return open(title, (close) => {
    const wrong = el("p", { class: "wrong", role: "alert" });
    const button = el("button", { type: "submit", class: "primary" }, yes);
    return el(
      "form",
      {
        novalidate: true,
        onsubmit: async (event) => {
          event.preventDefault();
          button.disabled = true;
          show(wrong);
          try {
            close((await work(button)) ?? true);
          } catch (error) {
            show(wrong, error.message);
            button.disabled = false;
          }
        },
      },
      parts,
      wrong,
      el(
        "div",
        { class: "actions" },
        el("button", { type: "button", class: "plain", onclick: () => close() }, "Cancel"),
        button,
      ),
    );
  }, attributes);
}

/** Show a note that disappears by itself; errors stay until closed. */
export function note(text, kind = "good") {
  const gone = () => shown.remove();
  const shown = el(
    "div",
    { class: `note ${kind}` },
    el("span", {}, text),
    el("button", { type: "button", class: "tool", "aria-label": "Close this note", onclick: gone }, "✕"),
  );
  const notes = document.getElementById("notes");
  while (notes.children.length > 3) notes.firstChild.remove();
  notes.append(shown);
  if (kind === "good") setTimeout(gone, 6000);
}

/** Run something, and show an error if it fails. */
export async function trying(work) {
  try {
    return await work();
  } catch (error) {
    if (error.status !== 401) note(error.message, "bad");
    return undefined;
  }
}

/** Copy a text. Without a clipboard API (neither TLS nor this machine) it copies a selection instead. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const holder = el("textarea", { class: "unseen", value: text });
    (document.querySelector("dialog") ?? document.body).append(holder);
    holder.select();
    const done = document.execCommand("copy");
    holder.remove();
    if (!done) {
      note("The browser did not let the page copy: select the text and copy it by hand.", "bad");
      return;
    }
  }
  note(`Copied ${what}.`);
}
