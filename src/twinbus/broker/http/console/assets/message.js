// One message in full, in a dialog that can move to the next and previous message of a list.

import { address, ask } from "./api.js";
import { bodyView, decoded, textOf } from "./body.js";
import { copy, open, trying } from "./dialogs.js";
import { el, show, time } from "./dom.js";
import { editMessage } from "./send.js";

/** `rows` is the list that contains the message; `changed` is called after an edit. */
export async function messageDialog(where, entity, rows, seq, changed) {
  let at = rows.findIndex((row) => row.seq === seq);
  let found = await ask("message", { ...where, seq });
  const title = el("span");
  const content = el("div", { class: "detail" });
  const button = (text, work, kind = "plain") => el("button", { type: "button", class: kind, onclick: () => trying(work) }, text);
  const previous = button("Previous", () => step(-1));
  const next = button("Next", () => step(1));
  const place = el("span", { class: "quiet", role: "status" });
  let close = null;
  const edit = button("Edit and resend", async () => {
    const sent = await editMessage(where, entity, found);
    if (!sent) return;
    close();
    changed();
  }, "primary");

  async function step(by) {
    if (!rows[at + by]) return;
    found = await ask("message", { ...where, seq: rows[at + by].seq });
    at += by;
    draw();
  }

  function draw() {
    show(title, `Message ${found.seq}`);
    show(place, `${at + 1} of ${rows.length} on this page`);
    // Not `disabled`, which would move the focus, and with it the arrow keys, out of the dialog.
    previous.setAttribute("aria-disabled", String(at <= 0));
    next.setAttribute("aria-disabled", String(at >= rows.length - 1));
    edit.hidden = !entity.rights.includes("Send") || Boolean(found.unreadable);
    show(content, messageView(found, address("body", { ...where, seq: found.seq })));
  }

  draw();
  await open(title, (end) => {
    close = end;
    return [
      el("div", { class: "bar" }, previous, next, place, el("span", { class: "push" }),
        button("Copy body", () => copy(bodyText(found) ?? found.body.base64, bodyText(found) === null ? "the body as base64" : "the body")),
        button("Copy as JSON", () => copy(asJson(found), "the message as JSON")), edit),
      content,
    ];
  }, {
    class: "large",
    onkeydown: (event) => {
      if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "ArrowLeft") trying(() => step(-1));
      if (event.key === "ArrowRight") trying(() => step(1));
    },
  });
}

/** Body and properties. */
export function messageView(found, download) {
  const pairs = (heading, lines) => (lines.length ? el("section", {}, el("h3", {}, heading), el("dl", { class: "pairs" }, lines.map(([name, type, text]) => [
    el("dt", {}, name, " ", type ? el("span", { class: "type" }, type) : null),
    el("dd", {}, text),
  ]))) : null);
  const times = [["enqueued", "", time(found.enqueued_ms)], ...(found.expires_ms ? [["expires", "", time(found.expires_ms)]] : [])];
  return [
    found.reason || found.description ? el("p", { class: "banner" }, el("strong", {}, found.reason ?? ""), found.description ? ` ${found.description}` : "") : null,
    found.unreadable ? el("p", { class: "banner" }, "The message is not valid AMQP. Its bytes are shown below.") : null,
    bodyView(found.body, download),
    pairs("Application properties", found.application),
    pairs("Properties", found.properties),
    pairs("System", [...times, ...found.system]),
  ];
}

/** The body as text; null if it is not text or not complete. */
export function bodyText(found) {
  const whole = found.body.shown_bytes === found.body.bytes;
  return whole ? textOf(decoded(found.body.base64), true) : null;
}

/** Save messages as a JSON file, one after the other. */
export async function download(where, rows) {
  const found = [];
  for (const row of rows.filter((each) => !each.damaged)) found.push(asJson(await ask("message", { ...where, seq: row.seq })));
  const href = URL.createObjectURL(new Blob([`[${found.join(",\n")}]\n`], { type: "application/json" }));
  el("a", { href, download: `${where.entity.replaceAll("/", "-")}-${where.part}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

function asJson(found) {
  const named = (lines) => Object.fromEntries(lines.map(([name, , text]) => [name, text]));
  const text = bodyText(found);
  return JSON.stringify({
    system: { ...named(found.system), enqueued: new Date(found.enqueued_ms).toISOString() },
    properties: named(found.properties),
    application_properties: named(found.application),
    ...(text === null ? { body_base64: found.body.base64 } : { body: text }),
  }, null, 2);
}
