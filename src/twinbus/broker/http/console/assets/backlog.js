// Diverted messages, and the events of pairs.

import { ask, watch } from "./api.js";
import { trying } from "./dialogs.js";
import { age, bytes, count, el, show, some, table, time } from "./dom.js";
import { entityAddress, faultsNote, tabs } from "./entities.js";

const EVERY_MS = 15000;
const COLUMNS = [["Backlog queue", "name"], ["Messages", "number"], ["Oldest", "number"], ["Dead letters", "number"], ["Size", "number"], ["For", "wide"]];

export function backlogPage(page, namespace) {
  const queues = el("div");
  const events = el("div");
  show(page.main, tabs(namespace, "Backlog and failover"), el("h1", {}, "Backlog and failover"), queues, el("h2", {}, "Events of the last hour"), events);
  let timer = 0;
  let latest = null;
  const look = async () => {
    const found = await trying(() => ask("events", { namespace }));
    if (!page.current()) return;
    if (found) showEvents(events, found);
    // Ages change even when nothing else does.
    if (latest) showQueues(queues, namespace, latest);
    timer = setTimeout(look, EVERY_MS);
  };
  page.onleave(() => clearTimeout(timer));
  look();
  return watch("backlog", { namespace }, (found) => {
    latest = found;
    if (page.current()) showQueues(queues, namespace, found);
  });
}

function showQueues(parent, namespace, found) {
  const held = parent.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const primaries = new Map();
  for (const queue of found.queues) {
    if (!primaries.has(queue.primary)) primaries.set(queue.primary, []);
    primaries.get(queue.primary).push(queue);
  }
  show(
    parent,
    faultsNote(found.faults),
    found.total
      ? el("p", { class: "quiet" }, `${some(found.active, "message")} diverted and not home yet, ${some(found.dead, "dead letter")}, in ${some(found.total, "backlog queue")}.`)
      : el("p", { class: "quiet empty" }, "No backlog queues: this namespace is not the secondary of a pair."),
    [...primaries].map(([primary, queues]) => el(
      "section",
      { "aria-label": `Backlog of ${primary}` },
      el("h2", {}, "For the primary ", el("strong", {}, primary)),
      table(`Backlog of ${primary}`, COLUMNS, queues.map((queue) => [
        el("a", { href: entityAddress(namespace, queue.path), "data-row": true }, queue.index),
        count(queue.active),
        queue.oldest_ms === null ? "–" : age(queue.oldest_ms),
        count(queue.dead),
        bytes(queue.bytes),
        queue.destinations.length
          ? [queue.destinations.map(([path, number]) => [el("span", { class: "tag soft" }, `${path} ${number}`), " "]),
            queue.active > queue.sampled ? el("span", { class: "quiet" }, ` of the first ${queue.sampled}`) : null]
          : "–",
      ])),
    )),
    found.total > found.queues.length ? el("p", { class: "hint" }, `Only ${count(found.queues.length)} are shown.`) : null,
  );
  if (held) [...parent.querySelectorAll("a")].find((each) => each.getAttribute("href") === held)?.focus();
}

function showEvents(parent, found) {
  if (!found.ledger) {
    show(parent, el("p", { class: "quiet" }, "There is no ledger: the broker was started without one."));
  } else if (!found.events.length) {
    show(parent, el("p", { class: "quiet" }, "None. Events of paired clients appear here if they write their ledger to this broker's ledger folder."));
  } else {
    const columns = [["When", "name"], ["What"], ["Entity", "wide"], ["Why"], ["Messages", "number"]];
    show(parent, table("Events", columns, found.events.map((event) => [
      time(event.at_ms),
      el("span", { class: event.event === "failed-over" || event.event === "dead-lettered" ? "tag warn" : "tag soft" }, event.event),
      `${event.namespace}/${event.entity}${event.queue ? ` (${event.queue})` : ""}`,
      event.cause ?? "–",
      event.count ? count(event.count) : "–",
    ])));
  }
}
