// Shows and changes the settings and rules of an entity.

import { tell } from "./api.js";
import { form, note, sure, trying } from "./dialogs.js";
import { count, el, field, show, table, time } from "./dom.js";

const NEVER_MS = 922337203685477;
const STATUSES = ["Active", "Disabled", "SendDisabled", "ReceiveDisabled"];
// Settings that cannot change once the entity exists, and its names.
const FIXED = new Set(["path", "topic", "name", "requires_session", "requires_duplicate_detection", "enable_partitioning", "forward_scheme"]);
const TEXTS = new Set(["forward_to", "forward_dead_letters_to", "user_metadata"]);

const titleOf = (name) => name.replace(/_ms$/, "").replaceAll("_", " ");

export function settingsView(content, namespace, found) {
  if (!found.settings) {
    show(content, el("p", { class: "quiet" }, "You do not have the right Listen here."));
    return;
  }
  const settings = Object.entries(found.settings).filter(([, value]) => value !== null);
  const pairs = [
    ["created", time(found.created_ms)],
    ["settings changed", time(found.updated_ms)],
    ["last used", time(found.accessed_ms)],
    ...settings.map(([name, value]) => [titleOf(name), valueOf(name, value)]),
  ];
  show(
    content,
    found.rules ? rules(namespace, found) : null,
    el("div", { class: "bar" }, el("h2", {}, "Settings"), el("span", { class: "push" }), found.rights.includes("Manage")
      ? el("button", { type: "button", class: "plain", onclick: () => trying(() => editSettings(namespace, found)) }, "Edit settings") : null),
    el("dl", { class: "pairs" }, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
  );
}

function valueOf(name, value) {
  if (!name.endsWith("_ms")) return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  return duration(value);
}

/** As a person writes it: 90 s, 5 min, 12 h, 14 d, or never. */
function duration(ms) {
  if (ms >= NEVER_MS) return "never";
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size && ms % size === 0) return `${ms / size} ${unit}`;
  }
  return `${ms / 1000} s`;
}

function milliseconds(text, name) {
  if (/^\s*never\s*$/i.test(text)) return NEVER_MS;
  const found = /^\s*(\d+(?:\.\d+)?)\s*(s|min|h|d)?\s*$/.exec(text);
  if (!found) throw new Error(`'${titleOf(name)}' is a duration: 90 s, 5 min, 12 h, 14 d, or never.`);
  return Math.round(Number(found[1]) * { s: 1000, min: 60000, h: 3600000, d: 86400000 }[found[2] ?? "s"]);
}

async function editSettings(namespace, found) {
  const inputs = Object.entries(found.settings).filter(([name]) => !FIXED.has(name)).map(([name, value]) => {
    if (name === "status") return [name, value, el("select", {}, STATUSES.map((each) => el("option", { value: each, selected: each === value }, each)))];
    if (typeof value === "boolean") return [name, value, el("input", { type: "checkbox", checked: value })];
    const shown = name.endsWith("_ms") ? duration(value) : value ?? "";
    return [name, value, el("input", { type: typeof value === "number" && !name.endsWith("_ms") ? "number" : "text", value: String(shown), autocomplete: "off", spellcheck: "false" })];
  });
  const status = inputs.filter(([name]) => name === "status");
  const others = inputs.filter(([name]) => name !== "status");
  const parts = [...status, ...others].map(([name, , input]) => field(titleOf(name), input));
  const saved = await form(`Settings of ${found.path}`, el("div", { class: "columns" }, parts), "Save", () => {
    const settings = {};
    for (const [name, before, input] of inputs) {
      const now = input.type === "checkbox" ? input.checked
        : name.endsWith("_ms") ? milliseconds(input.value, name)
          : TEXTS.has(name) || name === "status" ? input.value.trim() : Number(input.value);
      if (now !== (before ?? "")) settings[name] = now;
    }
    return tell("update", { namespace, entity: found.path, settings });
  });
  if (saved) note(`Changed the settings of '${found.path}'.`);
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
        if (await sure("Delete this rule?", `The rule '${rule.name}' no longer selects messages.`, "Delete")) {
          await tell("delete", { namespace, entity: found.path, rule: rule.name });
          note(`Deleted the rule '${rule.name}'.`);
        }
      }),
    }, "Delete")] : []),
  ]);
  return [
    el("div", { class: "bar" }, el("h2", {}, "Rules"), el("span", { class: "push" }),
      manages ? el("button", { type: "button", class: "plain", onclick: () => addRule(namespace, found) }, "New rule") : null),
    rows.length ? table("Rules", columns, rows) : el("p", { class: "quiet" }, "Without rules the subscription gets no messages."),
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
