// One entity: its live numbers, and its tabs (subscriptions, messages, dead letters, receiving, settings and rules).

import { ask, tell, watch } from "./api.js";
import { createEntity } from "./creation.js";
import { note, sure, trying } from "./dialogs.js";
import { bytes, count, el, show, some, sparkline } from "./dom.js";
import { badges, entityAddress, entityTable } from "./entities.js";
import { messageList } from "./messages.js";
import { receiveView } from "./receive.js";
import { sendMessage } from "./send.js";
import { settingsView } from "./settings.js";

const PARTS = { subscriptions: "Subscriptions", messages: "Messages", dead: "Dead letters", transfer: "Not forwarded", receive: "Receive", about: "Settings" };
const EVERY_MS = 2000;

export function entityPage(page, namespace, path, asked) {
  const heading = el("h1", { class: "path" }, path);
  const tags = el("span");
  const strip = el("dl", { class: "numbers strip" });
  const nav = el("nav", { class: "tabs", "aria-label": "Parts of the entity" });
  const content = el("div");
  const send = el("button", { type: "button", class: "primary", hidden: true }, "Send");
  const subscribe = el("button", { type: "button", class: "plain", hidden: true }, "New subscription");
  const remove = el("button", { type: "button", class: "danger-plain", hidden: true }, "Delete");
  show(
    page.main,
    el("div", { class: "bar" }, heading, tags, el("span", { class: "push" }), send, subscribe, remove),
    strip,
    nav,
    content,
  );
  let latest = null;
  let list = null;
  let part = asked;

  send.onclick = () => sendMessage(namespace, latest).then((sent) => sent && list?.stale());
  subscribe.onclick = () => createEntity(namespace, "subscription", path);
  remove.onclick = () => trying(() => deleteEntity(namespace, latest));
  page.keys({ "/": () => list?.find?.(), s: () => send.hidden || send.click(), r: () => list?.read(), n: () => subscribe.hidden || subscribe.click() });

  return watch("entity", { namespace, entity: path }, (found) => {
    if (!page.current()) return;
    const first = latest === null;
    const before = latest;
    latest = found;
    show(heading, found.path);
    // Most people open a topic for its subscriptions.
    if (!partsOf(found).includes(part)) part = partsOf(found)[0];
    show(tags, el("span", { class: "tag" }, found.kind), badges(found));
    send.hidden = found.kind === "subscription" || !found.rights.includes("Send");
    subscribe.hidden = found.kind !== "topic" || !found.rights.includes("Manage");
    remove.hidden = !found.rights.includes("Manage");
    numbers(strip, found);
    tabs(nav, namespace, found, part);
    if (first) {
      if (part === "about") settingsView(content, namespace, found);
      else if (part === "subscriptions") list = subscriptions(content, page, namespace, found);
      else if (part === "receive") list = receiveView(content, page, namespace, found);
      else list = messageList(content, page, namespace, found, part);
    } else if (part === "about" && JSON.stringify([before.rules, before.settings]) !== JSON.stringify([found.rules, found.settings])) {
      settingsView(content, namespace, found);
    } else if (list && changed(before, found, part)) {
      list.stale(found);
    }
  });
}

const changed = (before, now, part) => ({
  subscriptions: ["subscriptions", "bytes"],
  messages: ["active", "scheduled", "deferred"],
  dead: ["dead"],
  transfer: ["transfer_dead"],
}[part] ?? []).some((name) => before[name] !== now[name]);

/** The subscriptions of a topic; reloaded when the topic's numbers change, and periodically. */
function subscriptions(content, page, namespace, found) {
  const list = entityTable(namespace, "No subscriptions: published messages are dropped.", null, found.path);
  show(content, list.table);
  let timer = 0;
  const read = async () => {
    clearTimeout(timer);
    const answer = await trying(() => ask("entities", { namespace, topic: found.path }));
    if (!page.current()) return;
    if (answer) list.update(answer.rows);
    timer = setTimeout(read, EVERY_MS);
  };
  page.onleave(() => clearTimeout(timer));
  read();
  return { read, stale: read };
}

function numbers(strip, found) {
  const wanted = found.kind === "topic"
    ? [["Scheduled", count(found.scheduled)], ["Subscriptions", count(found.subscriptions)], ["Size", bytes(found.bytes)]]
    : [
        ["Active", count(found.active)],
        ["Scheduled", count(found.scheduled)],
        ["Deferred", count(found.deferred)],
        ["Dead letters", count(found.dead), found.dead ? "alarm" : null],
        ...(found.damaged ? [["Damaged", count(found.damaged), "alarm"]] : []),
        ["Size", bytes(found.bytes)],
      ];
  show(strip, wanted.map(([title, value, kind]) => el("div", { class: kind }, el("dt", {}, title), el("dd", {}, value))),
    found.history ? rates(found) : null);
}

/** Messages per second over the last minute. */
function rates(found) {
  const kinds = found.kind === "topic" ? [["sent", "In"]] : found.kind === "queue" ? [["sent", "In"], ["received", "Out"]] : [["received", "Out"]];
  return kinds.map(([name, title]) => el("div", { class: "rate" }, el("dt", {}, `${title}, messages a second`),
    el("dd", {}, rate(found.rate?.[name]), " ", sparkline(found.history[name], `${title}: messages a second over the last minute`))));
}

const rate = (value = 0) => (value >= 10 || value === 0 ? count(Math.round(value)) : value.toFixed(1));

function partsOf(found) {
  if (found.kind === "topic") return ["subscriptions", "messages", "about"];
  return ["messages", "dead", ...(found.transfer_dead ? ["transfer"] : []), "receive", "about"];
}

function tabs(nav, namespace, found, part) {
  const parts = partsOf(found);
  // Keep existing links: the user may be clicking one.
  const sign = `${parts} ${part}`;
  if (nav.dataset.sign === sign) return;
  nav.dataset.sign = sign;
  const held = nav.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  show(nav, parts.map((each) => el("a", {
    href: entityAddress(namespace, found.path, each),
    "aria-current": each === part ? "page" : null,
  }, found.kind === "topic" && each === "messages" ? "Scheduled" : PARTS[each])));
  if (held) [...nav.children].find((each) => each.getAttribute("href") === held)?.focus();
}

async function deleteEntity(namespace, found) {
  const inside = found.kind === "topic"
    ? `with ${some(found.subscriptions, "subscription")}`
    : `with ${some((found.active ?? 0) + (found.scheduled ?? 0) + (found.deferred ?? 0), "message")} and ${some(found.dead ?? 0, "dead letter")}`;
  const yes = await sure(`Delete this ${found.kind}?`, `This deletes '${found.path}' ${inside}. It cannot be undone.`, "Delete");
  if (!yes) return;
  await tell("delete", { namespace, entity: found.path });
  note(`Deleted '${found.path}'.`);
  location.hash = `#/n/${encodeURIComponent(namespace)}`;
}
