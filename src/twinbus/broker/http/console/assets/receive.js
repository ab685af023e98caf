// Receiving by hand: lock the next messages, view them, and complete, abandon, defer or dead-letter each.

import { tell } from "./api.js";
import { form, note, open, trying } from "./dialogs.js";
import { count, el, field, show, some, table } from "./dom.js";
import { messageView } from "./message.js";

const COLUMNS = [["Number", "number"], ["Message id"], ["Deliveries", "number"], ["Locked for", "number"], ["Body", "wide"], ["", "wide"]];
// Locked messages by entity: kept while the user visits another tab of the page.
const HELD = new Map();

export function receiveView(content, page, namespace, entity) {
  const key = `${namespace}/${entity.path}`;
  if (!entity.rights.includes("Listen")) {
    show(content, el("p", { class: "quiet" }, "You do not have the right Listen here."));
    return null;
  }
  if (!HELD.has(key)) HELD.set(key, []);
  const held = HELD.get(key);
  const from = el("select", { "aria-label": "Receive from" }, el("option", { value: "messages" }, "messages"), el("option", { value: "dead" }, "dead letters"));
  const many = el("input", { type: "number", min: 1, max: 20, value: "1", "aria-label": "How many", class: "short" });
  const session = el("input", { type: "text", maxlength: 128, placeholder: "Session id (empty for the next)", "aria-label": "Session id", autocomplete: "off", spellcheck: "false", hidden: !entity.sessions });
  const number = el("input", { type: "text", inputmode: "numeric", placeholder: "Deferred number", "aria-label": "Number of a deferred message", autocomplete: "off", class: "short" });
  const list = el("div");
  const button = (text, work, kind = "plain") => el("button", { type: "button", class: kind, onclick: () => trying(work) }, text);

  async function receive() {
    const wanted = number.value.trim();
    const where = { namespace, entity: entity.path, part: from.value };
    const fields = { count: Number(many.value), session: from.value === "messages" ? session.value.trim() : "", ...(wanted ? { numbers: [wanted] } : {}) };
    const { received } = await tell("receive", { ...where, ...fields });
    held.push(...received.map((message) => ({ message, where })));
    note(received.length ? `Received ${some(received.length, "message")}: locked until you settle them or the lock expires.` : "There is nothing to receive.");
    number.value = "";
    draw();
  }

  async function settle(each, how, fields = {}) {
    try {
      const done = await tell("settle", { ...each.where, handle: each.message.handle, how, ...fields });
      if (how === "renew") each.message.locked_until_ms = done.locked_until_ms;
      else held.splice(held.indexOf(each), 1);
    } catch (error) {
      if (error.status === 410) held.splice(held.indexOf(each), 1);
      throw error;
    } finally {
      draw();
    }
  }

  /** Settle each lock separately, so that an expired one does not affect the others. */
  async function settleAll(those, how, fields) {
    for (const each of those) await trying(() => settle(each, how, fields));
  }

  async function bury(those) {
    const reason = el("input", { type: "text", autofocus: true, autocomplete: "off" });
    const description = el("input", { type: "text", autocomplete: "off" });
    await form(`Dead-letter ${some(those.length, "message")}`, [field("Reason", reason), field("Description", description)], "Dead-letter", () =>
      settleAll(those, "dead-letter", { reason: reason.value, description: description.value }), { class: "small" });
  }

  const settlements = (those, label = "") => el("div", { class: "settle" },
    [["Complete", "complete"], ["Abandon", "abandon"], ["Defer", "defer"]].map(([text, how]) => button(text + label, () => settleAll(those, how))),
    those.some((each) => each.where.part === "dead") ? null : button(`Dead-letter${label}`, () => bury(those)),
    button(`Renew${label}`, () => settleAll(those, "renew")));

  const left = (each) => Math.max(0, Math.ceil((each.message.locked_until_ms - Date.now()) / 1000));

  function draw() {
    if (!held.length) {
      show(list, el("p", { class: "quiet empty" }, "You hold no message of this entity. Receiving locks a message for you and counts a delivery when you give it back."));
      return;
    }
    show(list, table("Received messages", COLUMNS, held.map((each) => [
      el("button", { type: "button", class: "link", "data-row": true, "aria-label": `Received message ${each.message.seq}`,
        onclick: () => open(`Message ${each.message.seq}`, () => el("div", { class: "detail" }, messageView(each.message, null)), { class: "large" }) }, each.message.seq),
      [each.message.id ?? "", each.message.session ? [" ", el("span", { class: "tag soft" }, `session ${each.message.session}`)] : null,
        each.where.part === "dead" ? [" ", el("span", { class: "tag warn" }, "dead letter")] : null],
      count(each.message.deliveries),
      el("span", { "data-until": each.message.handle }, `${left(each)} s`),
      el("code", { class: "preview" }, each.message.preview ?? ""),
      settlements([each]),
    ]), { class: "messages" }), held.length > 1 ? settlements([...held], " all") : null);
  }

  show(
    content,
    el("div", { class: "bar" }, from, many, session, number, button("Receive", receive, "primary")),
    list,
  );
  draw();
  const timer = setInterval(() => {
    for (const each of held) {
      const shown = list.querySelector(`[data-until="${CSS.escape(each.message.handle)}"]`);
      if (shown) shown.textContent = left(each) ? `${left(each)} s` : "lapsed";
    }
  }, 1000);
  page.onleave(() => clearInterval(timer));
  return { read: () => trying(receive), stale: () => {} };
}
