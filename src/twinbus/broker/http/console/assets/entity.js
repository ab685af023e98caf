// One entity: its numbers, live, and its parts (messages, dead letters, settings and rules).

import { tell, watch } from "./api.js";
import { form, note, sure, trying } from "./dialogs.js";
import { bytes, count, el, field, show, some, table, time } from "./dom.js";
import { badges, createEntity, entityAddress } from "./entities.js";
import { messageList } from "./messages.js";
import { sendMessage } from "./send.js";

const PARTS = { messages: "Messages", dead: "Dead letters", transfer: "Not forwarded", about: "Settings" };

export function entityPage(page, namespace, path, asked) {
  const part = asked in PARTS ? asked : "messages";
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

  send.onclick = () => sendMessage(namespace, latest).then((sent) => sent && list?.stale());
  subscribe.onclick = () => createEntity(namespace, "subscription", path);
  remove.onclick = () => trying(() => deleteEntity(namespace, latest));
  page.keys({ s: () => send.hidden || send.click(), r: () => list?.read(), n: () => subscribe.hidden || subscribe.click() });

  return watch("entity", { namespace, entity: path }, (found) => {
    if (!page.current()) return;
    const first = latest === null;
    const before = latest;
    latest = found;
    heading.textContent = found.path;
    show(tags, el("span", { class: "tag" }, found.kind), badges(found));
    send.hidden = found.kind === "subscription" || !found.rights.includes("Send");
    subscribe.hidden = found.kind !== "topic" || !found.rights.includes("Manage");
    remove.hidden = !found.rights.includes("Manage");
    numbers(strip, found);
    tabs(nav, namespace, found, part);
    if (first) {
      if (part === "about") about(content, namespace, found);
      else list = messageList(content, page, namespace, found, part);
    } else if (part === "about" && JSON.stringify(before.rules) !== JSON.stringify(found.rules)) {
      about(content, namespace, found);
    } else if (list && changed(before, found, part)) {
      list.stale(found);
    }
  });
}

const changed = (before, now, part) => (part === "messages"
  ? ["active", "scheduled", "deferred"].some((name) => before[name] !== now[name])
  : part === "dead" ? before.dead !== now.dead : before.transfer_dead !== now.transfer_dead);

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
  show(strip, wanted.map(([title, value, kind]) => el("div", { class: kind }, el("dt", {}, title), el("dd", {}, value))));
}

function tabs(nav, namespace, found, part) {
  const parts = ["messages"];
  if (found.kind !== "topic") parts.push("dead");
  if (found.transfer_dead) parts.push("transfer");
  parts.push("about");
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
  const yes = await sure(`Delete this ${found.kind}?`, `'${found.path}' goes ${inside}. This cannot be undone.`, "Delete");
  if (!yes) return;
  await tell("delete", { namespace, entity: found.path });
  note(`Deleted '${found.path}'.`);
  location.hash = `#/n/${encodeURIComponent(namespace)}`;
}

// --- settings and rules -----------------------------------------------------------------------------------------------

const NEVER_MS = 922337203685477;

function about(content, namespace, found) {
  if (!found.settings) {
    show(content, el("p", { class: "quiet" }, "Your key does not have the right Listen here."));
    return;
  }
  const settings = Object.entries(found.settings).filter(([, value]) => value !== null);
  const pairs = [
    ["created", time(found.created_ms)],
    ["settings changed", time(found.updated_ms)],
    ["last used", time(found.accessed_ms)],
    ...settings.map(([name, value]) => [name.replace(/_ms$/, "").replaceAll("_", " "), valueOf(name, value)]),
  ];
  show(
    content,
    found.rules ? rules(namespace, found) : null,
    el("h2", {}, "Settings"),
    el("dl", { class: "pairs" }, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
  );
}

function valueOf(name, value) {
  if (!name.endsWith("_ms")) return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  if (value >= NEVER_MS) return "never";
  return value % 60000 ? `${value / 1000} s` : `${value / 60000} min`;
}

function rules(namespace, found) {
  const manages = found.rights.includes("Manage");
  const columns = [["Rule", "name"], ["Takes"], ["Changes"], ...(manages ? [["", "number"]] : [])];
  const rows = found.rules.map((rule) => [
    rule.name,
    el("code", {}, rule.condition),
    rule.action ? el("code", {}, rule.action) : "nothing",
    ...(manages ? [el("button", {
      type: "button",
      class: "danger-plain",
      "aria-label": `Delete rule ${rule.name}`,
      onclick: () => trying(async () => {
        if (await sure("Delete this rule?", `The rule '${rule.name}' selects no more messages from now on.`, "Delete")) {
          await tell("delete", { namespace, entity: found.path, rule: rule.name });
          note(`Deleted the rule '${rule.name}'.`);
        }
      }),
    }, "Delete")] : []),
  ]);
  return [
    el("div", { class: "bar" }, el("h2", {}, "Rules"), el("span", { class: "push" }),
      manages ? el("button", { type: "button", class: "plain", onclick: () => addRule(namespace, found) }, "New rule") : null),
    rows.length ? table("Rules", columns, rows) : el("p", { class: "quiet" }, "Without a rule it takes no message."),
    found.rules_total > found.rules.length ? el("p", { class: "hint" }, `Only ${count(found.rules.length)} of ${count(found.rules_total)} are shown.`) : null,
  ];
}

async function addRule(namespace, found) {
  const name = el("input", { type: "text", maxlength: 50, autofocus: true, autocomplete: "off", spellcheck: "false" });
  const filter = el("input", { type: "text", maxlength: 1024, placeholder: "amount > 100", autocomplete: "off", spellcheck: "false" });
  const action = el("input", { type: "text", maxlength: 1024, placeholder: "SET large = TRUE", autocomplete: "off", spellcheck: "false" });
  const parts = [field("Name", name), field("Takes", filter, "A SQL condition; empty takes every message."), field("Changes", action, "A SQL action, or nothing.")];
  const made = await form("New rule", parts, "Create", () => tell("create", {
    namespace,
    kind: "rule",
    topic: found.topic,
    subscription: found.name,
    name: name.value,
    filter: filter.value,
    action: action.value,
  }));
  if (made) note(`Created the rule '${name.value}'.`);
}
