// All namespaces of the process.

import { watch } from "./api.js";
import { bytes, count, el, show, some } from "./dom.js";

export function namespacesPage(page) {
  const cards = el("div", { class: "cards" });
  show(page.main, el("h1", {}, "Namespaces"), cards);
  return watch("namespaces", {}, ({ namespaces }) => {
    if (!page.current()) return;
    const held = cards.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    show(cards, namespaces.map(card));
    // Restore the focus, because the cards are new.
    if (held) [...cards.querySelectorAll("a")].find((each) => each.getAttribute("href") === held)?.focus();
  });
}

function card(each) {
  const href = `#/n/${encodeURIComponent(each.name)}`;
  const number = (title, value, kind) => el("div", { class: kind }, el("dt", {}, title), el("dd", {}, value));
  return el(
    "section",
    { class: "card", "aria-label": `Namespace ${each.name}` },
    el("h2", {}, el("a", { href, class: "cover" }, each.name)),
    el("p", { class: "quiet" }, each.port ? `port ${each.port}` : "", each.policy || each.account ? ` · as ${each.policy ?? each.account}` : ""),
    each.queues === undefined
      ? el("p", { class: "quiet" }, each.open ? "You do not have the right Listen on the whole namespace." : "Not logged in.")
      : [
          el(
            "dl",
            { class: "numbers" },
            number("Messages", count(each.active)),
            number("Dead letters", count(each.dead), each.dead ? "alarm" : null),
            number("Connections", count(each.connections)),
          ),
          el(
            "p",
            { class: "quiet" },
            `${some(each.queues, "queue")}, ${some(each.topics, "topic")} · ${some(each.senders, "sender")}, ${some(each.receivers, "receiver")} · ${bytes(each.bytes)} on disk`,
          ),
          each.store === "ok" ? null : el("p", { class: "alarm" }, `The store is ${each.store}.`),
          each.faults.length ? el("p", { class: "alarm" }, `${some(each.faults.length, "fault")} made on purpose.`) : null,
        ],
  );
}
