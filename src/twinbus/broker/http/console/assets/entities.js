// The entities of a namespace with live numbers.

import { tell, watch } from "./api.js";
import { createEntity } from "./creation.js";
import { copy, open, trying } from "./dialogs.js";
import { bytes, count, el, line, show, some, sparkline, table } from "./dom.js";

const COLUMNS = [
  ["Name", "name"],
  ["Active", "number"],
  ["Scheduled", "number"],
  ["Deferred", "number"],
  ["Dead letters", "number"],
  ["Size", "number"],
  ["Messages a second", "number rates"],
];
// The broker's name of each sortable column.
const ORDERS = ["name", "active", "scheduled", "deferred", "dead", "bytes", null];
const PAGE = 250;

export const entityAddress = (namespace, path, part) =>
  `#/n/${encodeURIComponent(namespace)}/e/${encodeURIComponent(path)}${part ? `/${part}` : ""}`;

export function tabs(namespace, current) {
  const base = `#/n/${encodeURIComponent(namespace)}`;
  const found = [["Entities", base], ["Connections", `${base}/connections`], ["Backlog and failover", `${base}/backlog`], ["Ledger", `${base}/ledger`]];
  return el("nav", { class: "tabs", "aria-label": "Views of the namespace" }, found.map(([name, href]) =>
    el("a", { href, "aria-current": name === current ? "page" : null }, name)));
}

export function faultsNote(faults) {
  return el("div", { role: "status" }, faults.map((fault) => el("p", { class: "banner" },
    fault.entity ? `'${fault.entity}' is ${fault.mode}` : `The namespace is ${fault.mode}`, ": an injected fault.")));
}

export function entitiesPage(page, namespace) {
  let sort = "name";
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
  const kinds = el("select", { "aria-label": "Kind", onchange: () => trying(() => look(0)) },
    [["", "all kinds"], ["queue", "queues"], ["topic", "topics"], ["subscription", "subscriptions"]].map(([value, name]) => el("option", { value }, name)));
  const dead = el("input", { type: "checkbox", id: "only-dead", onchange: () => trying(() => look(0)) });
  const narrowed = () => filter.value.trim() || kinds.value || dead.checked;
  const list = entityTable(namespace, () => (narrowed() ? "No entity matches." : "There are no entities yet."), (name) => {
    sort = name;
    return trying(() => look(0));
  });
  const sum = el("p", { class: "quiet", role: "status" });
  const faults = el("div");
  const pages = el("div", { class: "actions" });
  const make = el("button", { type: "button", class: "primary", hidden: true, onclick: () => createEntity(namespace, "queue") }, "New entity");
  const connect = el("button", { type: "button", class: "plain", onclick: () => trying(() => connectionString(namespace)) }, "Connection string");
  show(
    page.main,
    tabs(namespace, "Entities"),
    el("div", { class: "bar" }, el("h1", {}, namespace), el("span", { class: "push" }), connect, make),
    el("div", { class: "bar" }, filter, kinds, el("span", { class: "check" }, dead, " ", el("label", { for: "only-dead" }, "only with dead letters"))),
    faults,
    sum,
    list.table,
    pages,
  );
  page.keys({ "/": () => filter.focus(), n: () => make.hidden || make.click() });

  function look(skip) {
    const query = { namespace, search: filter.value.trim(), kind: kinds.value, only: dead.checked ? "dead" : "", sort, skip };
    return watch("entities", query, (found) => {
      if (!page.current()) return;
      make.hidden = !found.rights.includes("Manage");
      show(faults, faultsNote(found.faults));
      show(sum, `${some(found.queues, "queue")} and ${some(found.topics, "topic")}`, narrowed() ? `, ${count(found.found)} found` : "",
        found.skip || found.more ? `, shown from ${count(found.skip + 1)}` : "");
      list.update(found.rows);
      const turn = (to, name) => el("button", { type: "button", class: "plain", onclick: () => trying(() => look(to)) }, name);
      show(
        pages,
        found.skip ? turn(Math.max(0, found.skip - PAGE), "Previous") : null,
        found.more ? turn(found.skip + PAGE, "Next") : null,
      );
    });
  }

  const timer = setInterval(() => list.sample(), 1000);
  page.onleave(() => {
    clearTimeout(entitiesPage.timer);
    clearInterval(timer);
  });
  return look(0);
}

async function connectionString(namespace) {
  const found = await tell("connection-string", { namespace });
  const text = el("textarea", { rows: 4, readonly: true, "aria-label": "Connection string", spellcheck: "false", value: found.connection_string });
  await open("Connection string", () => [
    el("p", { class: "quiet" }, `Of the policy ${found.policy}. It contains a key: anyone who has it can do everything the policy allows.`),
    text,
    el("div", { class: "actions" }, el("button", { type: "button", class: "primary", autofocus: true, onclick: () => trying(() => copy(found.connection_string, "the connection string")) }, "Copy")),
  ]);
}

/** A table of entities. A row keeps its element while its entity exists, so the focus stays, too. `within` is the topic
 * whose subscriptions are listed; null lists all kinds. */
export function entityTable(namespace, empty, onsort = null, within = null) {
  const rows = new Map();
  const made = table("Entities", COLUMNS, []);
  const list = made.querySelector("tbody");
  const heads = [...made.querySelectorAll("thead th")];
  if (onsort) {
    heads.forEach((head, at) => {
      if (!ORDERS[at]) return;
      const name = COLUMNS[at][0];
      show(head, el("button", { type: "button", class: "sort", onclick: () => mark(at) || onsort(ORDERS[at]) }, name));
    });
    mark(0);
  }
  function mark(at) {
    heads.forEach((head, each) => (each === at ? head.setAttribute("aria-sort", at ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
  }

  function update(wanted) {
    let topic = within;
    const shown = wanted.map((row) => {
      // Below its topic a subscription shows its name; elsewhere its path.
      const name = row.kind === "subscription" && row.topic !== topic ? row.path : row.name;
      if (row.kind === "topic") topic = row.path;
      const known = rows.get(row.path);
      const sign = JSON.stringify([name, row.kind, row.status, row.sessions, row.duplicates, row.forward_to]);
      if (known && known.sign === sign) {
        renew(known, row);
        return known.line;
      }
      const fresh = { sign, rates: known?.rates ?? [...(row.rate?.history ?? [])], line: line(COLUMNS, [title(namespace, row, name), ...numbers(row), ""], { class: name === row.name && !within ? row.kind : "alone" }) };
      fresh.values = numbers(row);
      fresh.rate = row.rate;
      colour(fresh.line, row);
      rows.set(row.path, fresh);
      drawRate(fresh);
      return fresh.line;
    });
    const paths = new Set(wanted.map((row) => row.path));
    for (const path of rows.keys()) if (!paths.has(path)) rows.delete(path);
    if (!shown.length) {
      show(list, el("tr", { class: "empty" }, el("td", { colspan: COLUMNS.length }, typeof empty === "string" ? empty : empty())));
    } else if (list.children.length !== shown.length || shown.some((each, at) => list.children[at] !== each)) {
      const held = document.activeElement;
      show(list, shown);
      if (list.contains(held)) held.focus();
    }
  }

  /** Called once a second: a constant rate is part of the line, too. */
  function sample() {
    for (const known of rows.values()) {
      const total = (known.rate?.sent ?? 0) + (known.rate?.received ?? 0);
      if (!total && !known.rates.some(Boolean)) continue;
      known.rates.push(total);
      if (known.rates.length > 60) known.rates.shift();
      drawRate(known);
    }
  }

  return { table: made, update, sample };
}

function drawRate(known) {
  const { sent = 0, received = 0 } = known.rate ?? {};
  const text = `${perSecond(sent)} in, ${perSecond(received)} out`;
  show(known.line.lastChild, known.rates.length > 1 ? sparkline(known.rates, "Messages a second over the last minute") : null,
    sent || received || known.rates.some(Boolean) ? el("span", { class: "quiet" }, text) : null);
}

const perSecond = (value) => `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)}/s`;

function renew(known, row) {
  const values = numbers(row);
  values.forEach((value, at) => {
    if (value === known.values[at]) return;
    const cell = known.line.children[at + 1];
    cell.textContent = value;
    cell.classList.remove("changed");
    // Reading the width restarts the animation.
    void cell.offsetWidth;
    cell.classList.add("changed");
  });
  known.values = values;
  known.rate = row.rate;
  drawRate(known);
  colour(known.line, row);
}

/** Dim zeros, highlight dead letters. */
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

function title(namespace, row, name) {
  return [
    el("a", { href: entityAddress(namespace, row.path), "data-row": true }, name),
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
