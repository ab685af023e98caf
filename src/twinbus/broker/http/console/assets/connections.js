// The connections of a namespace with their links, a button that closes one, and the clients that were refused.

import { tell, watch } from "./api.js";
import { note, sure, trying } from "./dialogs.js";
import { count, el, show, some, table, time } from "./dom.js";
import { tabs } from "./entities.js";

const REFUSED = [["When", "when"], ["Address", "name"], ["Reason"], ["Policy"], ["Entity", "wide"], ["Tracking id", "wide"]];
// What to do about it, for the reasons that people meet.
const HINTS = {
  InvalidSignature: "The key is wrong, or belongs to another namespace or policy.",
  ExpiredToken: "The token has expired: the client did not renew it, or a clock is wrong.",
  InvalidAudience: "The token was made for another entity or namespace.",
  MissingRight: "The key is right, but its policy lacks the right that this needs.",
  MissingToken: "The client did not present a token first.",
};
const COLUMNS = [["Address", "name"], ["Client", "wide"], ["Transport"], ["Since", "when"], ["Links", "wide"], ["", "number"]];

export function connectionsPage(page, namespace) {
  const list = el("div");
  const sum = el("p", { class: "quiet", role: "status" });
  const pages = el("div", { class: "actions" });
  const refused = el("div");
  show(page.main, tabs(namespace, "Connections"), el("h1", {}, "Connections"), sum, list, pages, refused);

  function look(after) {
    return watch("connections", { namespace, after }, (found) => {
      if (!page.current()) return;
      const held = list.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
      show(sum, `${some(found.total, "connection")} over AMQP.`);
      show(list, found.connections.length
        ? table("Connections", COLUMNS, found.connections.map((each) => row(namespace, each)), { class: "connections" })
        : el("p", { class: "quiet empty" }, "Nobody is connected."));
      show(refused, found.refused.length
        ? [el("h2", {}, "Refused clients"), table("Refused clients", REFUSED, found.refused.map(refusal), { class: "refused" })]
        : null);
      show(
        pages,
        after ? el("button", { type: "button", class: "plain", onclick: () => trying(() => look(0)) }, "First page") : null,
        found.more ? el("button", { type: "button", class: "plain", onclick: () => trying(() => look(found.connections.at(-1).number)) }, "Next page") : null,
      );
      if (held) [...list.querySelectorAll("button")].find((each) => each.getAttribute("aria-label") === held)?.focus();
    });
  }

  return look(0);
}

function row(namespace, each) {
  // Every client has a link to `$cbs` for its tokens, so it is not worth showing.
  const links = each.links.filter((link) => link.address !== "$cbs").map((link) => [el("span", { class: "tag soft", title: `${link.name}, credit ${link.credit}, ${link.unsettled} unsettled` },
    `${link.role === "sender" ? "sends to" : "receives from"} ${(link.address ?? "–").replace(/^amqps?:\/\/[^/]*\//, "")}`), " "]);
  return [
    each.address,
    [each.client || "–", each.container ? el("div", { class: "quiet" }, each.container) : null],
    each.transport,
    time(each.opened_ms),
    [links, each.links_total > each.links.length ? el("span", { class: "quiet" }, ` and ${count(each.links_total - each.links.length)} more`) : null],
    el("button", { type: "button", class: "danger-plain", "aria-label": `Close the connection of ${each.address}`, onclick: () => trying(() => end(namespace, each)) }, "Close"),
  ];
}

function refusal(each) {
  return [
    time(each.at_ms),
    each.address || "–",
    el("span", { title: HINTS[each.reason] ?? "" }, each.reason),
    each.policy || "–",
    each.entity || "–",
    each.tracking_id || "–",
  ];
}

async function end(namespace, each) {
  const yes = await sure("Close this connection?", `The client at ${each.address} is told that an administrator closed it. Its sessions are released; its message locks last until they expire. It may reconnect.`, "Close");
  if (!yes) return;
  await tell("close-connection", { namespace, number: each.number });
  note(`Closed the connection of ${each.address}.`);
}
