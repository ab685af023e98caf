// The entities of a namespace with live numbers.

import { tell, watch } from "./api.js";
import { form, note, trying } from "./dialogs.js";
import { bytes, count, el, field, line, show, some, table } from "./dom.js";

const COLUMNS = [
  ["Name", "name"],
  ["Active", "number"],
  ["Scheduled", "number"],
  ["Deferred", "number"],
  ["Dead letters", "number"],
  ["Size", "number"],
];

export const entityAddress = (namespace, path, part) =>
  `#/n/${encodeURIComponent(namespace)}/e/${encodeURIComponent(path)}${part ? `/${part}` : ""}`;

export function tabs(namespace, current) {
  const base = `#/n/${encodeURIComponent(namespace)}`;
  const found = [["Entities", base], ["Backlog and failover", `${base}/backlog`], ["Ledger", `${base}/ledger`]];
  return el("nav", { class: "tabs", "aria-label": "Views of the namespace" }, found.map(([name, href]) =>
    el("a", { href, "aria-current": name === current ? "page" : null }, name)));
}

export function faultsNote(faults) {
  return el("div", { role: "status" }, faults.map((fault) => el("p", { class: "banner" },
    fault.entity ? `'${fault.entity}' is ${fault.mode}` : `The namespace is ${fault.mode}`, ": a fault made on purpose.")));
}

export function entitiesPage(page, namespace) {
  const rows = new Map();
  const body = table("Entities", COLUMNS, []);
  const list = body.querySelector("tbody");
  const filter = el("input", {
    type: "search",
    placeholder: "Filter by name",
    "aria-label": "Filter by name",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => {
      clearTimeout(entitiesPage.timer);
      entitiesPage.timer = setTimeout(() => trying(() => look(0)), 200);
    },
  });
  const sum = el("p", { class: "quiet", role: "status" });
  const faults = el("div");
  const pages = el("div", { class: "actions" });
  const make = el("button", { type: "button", class: "primary", hidden: true, onclick: () => createEntity(namespace, "queue") }, "New entity");
  show(
    page.main,
    tabs(namespace, "Entities"),
    el("div", { class: "bar" }, el("h1", {}, namespace), el("span", { class: "push" }), filter, make),
    faults,
    sum,
    body,
    pages,
  );
  page.keys({ "/": () => filter.focus(), n: () => make.hidden || make.click() });

  function look(skip) {
    return watch("entities", { namespace, search: filter.value.trim(), skip }, (found) => {
      if (!page.current()) return;
      make.hidden = !found.rights.includes("Manage");
      show(faults, faultsNote(found.faults));
      sum.textContent = `${some(found.queues, "queue")} and ${some(found.topics, "topic")}`
        + (found.skip || found.more ? `, shown from ${count(found.skip + 1)}` : "");
      update(found.rows);
      show(
        pages,
        found.skip ? el("button", { type: "button", class: "plain", onclick: () => trying(() => look(Math.max(0, found.skip - 100))) }, "Previous") : null,
        found.more ? el("button", { type: "button", class: "plain", onclick: () => trying(() => look(found.skip + 100)) }, "Next") : null,
      );
    });
  }

  /** Rows stay the same elements while their entity is there: the focus stays, too. */
  function update(wanted) {
    const shown = wanted.map((row) => {
      const known = rows.get(row.path);
      const sign = JSON.stringify([row.kind, row.status, row.sessions, row.duplicates, row.forward_to]);
      if (known && known.sign === sign) {
        renew(known, row);
        return known.line;
      }
      const made = { sign, line: line(COLUMNS, [title(namespace, row), ...numbers(row)], { class: row.kind }) };
      made.values = numbers(row);
      colour(made.line, row);
      rows.set(row.path, made);
      return made.line;
    });
    const paths = new Set(wanted.map((row) => row.path));
    for (const path of rows.keys()) if (!paths.has(path)) rows.delete(path);
    if (!shown.length) {
      show(list, el("tr", { class: "empty" }, el("td", { colspan: COLUMNS.length },
        filter.value ? "No entity has this in its name." : "There are no entities yet.")));
    } else if (list.children.length !== shown.length || shown.some((each, at) => list.children[at] !== each)) {
      const held = document.activeElement;
      show(list, shown);
      if (list.contains(held)) held.focus();
    }
  }

  page.onleave(() => clearTimeout(entitiesPage.timer));
  return look(0);
}

function renew(known, row) {
  const values = numbers(row);
  values.forEach((value, at) => {
    if (value === known.values[at]) return;
    const cell = known.line.children[at + 1];
    cell.textContent = value;
    cell.classList.remove("changed");
    // Asking for the width makes the browser begin the animation anew.
    void cell.offsetWidth;
    cell.classList.add("changed");
  });
  known.values = values;
  colour(known.line, row);
}

/** Zeros step back, dead letters stand out. */
function colour(made, row) {
  [...made.children].forEach((cell, at) => {
    cell.classList.toggle("zero", at > 0 && (cell.textContent === "0" || cell.textContent === "0 B"));
    cell.classList.toggle("alarm", COLUMNS[at][0] === "Dead letters" && row.dead > 0);
  });
}

function numbers(row) {
  if (row.kind === "topic") return ["", count(row.scheduled), "", "", bytes(row.bytes)];
  return [count(row.active), count(row.scheduled), count(row.deferred), count(row.dead), bytes(row.bytes)];
}

function title(namespace, row) {
  return [
    el("a", { href: entityAddress(namespace, row.path), "data-row": true }, row.name),
    " ",
    el("span", { class: "tag" }, row.kind),
    badges(row),
  ];
}

export function badges(row) {
  return [
    row.sessions ? [" ", el("span", { class: "tag soft" }, "sessions")] : null,
    row.duplicates ? [" ", el("span", { class: "tag soft" }, "duplicate detection")] : null,
    row.forward_to ? [" ", el("span", { class: "tag soft" }, `→ ${row.forward_to}`)] : null,
    row.status === "Active" ? null : [" ", el("span", { class: "tag warn" }, row.status)],
  ];
}

/** The form for a new queue, topic or subscription; `topic` is where a subscription goes. */
export async function createEntity(namespace, kind, topic = "") {
  const kinds = el("select", { onchange: () => arrange() },
    ["queue", "topic", "subscription"].map((each) => el("option", { value: each, selected: each === kind }, each)));
  const name = el("input", { type: "text", maxlength: 260, autocomplete: "off", spellcheck: "false", required: true });
  const of = el("input", { type: "text", maxlength: 260, value: topic, autocomplete: "off", spellcheck: "false" });
  const filter = el("input", { type: "text", maxlength: 1024, placeholder: "kind = 'order'", autocomplete: "off", spellcheck: "false" });
  const sessions = el("input", { type: "checkbox" });
  const duplicates = el("input", { type: "checkbox" });
  const expiry = el("input", { type: "checkbox" });
  const deliveries = el("input", { type: "number", min: 1, value: "10" });
  const lock = el("input", { type: "number", min: 5, max: 300, value: "60" });
  const topicField = field("Topic", of);
  const filterField = field("Filter", filter, "A SQL condition; empty takes every message.");
  const duplicatesField = field("Duplicate detection", duplicates);
  const queueOnly = [
    field("Sessions", sessions),
    field("Dead-letter what expires", expiry),
    field("Deliveries before dead-lettering", deliveries),
    field("Lock, in seconds", lock),
  ];
  function arrange() {
    topicField.hidden = filterField.hidden = kinds.value !== "subscription";
    duplicatesField.hidden = kinds.value === "subscription";
    queueOnly.forEach((each) => {
      each.hidden = kinds.value === "topic";
    });
  }
  arrange();
  const parts = [field("Kind", kinds), topicField, field("Name", name), filterField, duplicatesField, queueOnly];
  name.setAttribute("autofocus", "");
  const made = await form("New entity", parts, "Create", () => {
    const settings = {};
    if (kinds.value !== "subscription" && duplicates.checked) settings.requires_duplicate_detection = true;
    if (kinds.value !== "topic") {
      if (sessions.checked) settings.requires_session = true;
      if (expiry.checked) settings.dead_letter_on_expiry = true;
      settings.max_delivery_count = Number(deliveries.value);
      settings.lock_duration_ms = Math.round(Number(lock.value) * 1000);
    }
    return tell("create", { namespace, kind: kinds.value, name: name.value, topic: of.value, filter: filter.value, settings });
  });
  if (made) note(`Created '${made.path}'.`);
  return made;
}
