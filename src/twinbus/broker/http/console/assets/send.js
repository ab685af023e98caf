// The form of a message: a new one, or one to edit and resend.

import { tell } from "./api.js";
import { form, note } from "./dialogs.js";
import { el, field, show, some } from "./dom.js";
import { bodyText } from "./message.js";

const ROWS_MAX = 200;
const EDITABLE = new Set(["string", "long", "int", "uint", "ulong", "short", "ushort", "byte", "ubyte", "double", "boolean", "bool"]);
const MARKS = new Set(["DeadLetterReason", "DeadLetterErrorDescription"]);

const line = (value = "", attributes = {}) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", value, ...attributes });

export async function sendMessage(namespace, entity) {
  const parts = messageParts({ content_type: "application/json" }, entity.sessions ? "Required here." : null);
  const copies = el("input", { type: "number", min: 1, max: 100, value: "1" });
  parts.columns.append(field("Copies", copies));
  const sent = await form(`Send to ${entity.path}`, parts.all, "Send", (button) => {
    parts.check(button);
    return tell("send", { namespace, entity: entity.path, ...parts.texts(), ...parts.times(), properties: parts.properties(), copies: Number(copies.value) });
  });
  if (sent) note(`Sent ${some(sent.sent, "message")} to '${entity.path}'.`);
  return sent;
}

/** Edit a message and send it; the original is deleted in the same commit unless it is kept. */
export async function editMessage(where, entity, found) {
  const named = Object.fromEntries(found.properties.map(([name, , text]) => [name, text]));
  const text = bodyText(found);
  const editable = text !== null && ["data", "text value", "empty"].includes(found.body.kind);
  const before = {
    body: editable ? text : null,
    content_type: named.content_type ?? "",
    session_id: named.session_id ?? "",
    message_id: named.message_id ?? "",
    subject: named.subject ?? "",
    correlation_id: named.correlation_id ?? "",
  };
  const shown = entity.duplicates ? { ...before, message_id: "" } : before;
  const parts = messageParts(shown, entity.sessions ? "Required here." : null, found.application.filter(([name]) => !MARKS.has(name)));
  const to = line("", { placeholder: entity.path });
  const keep = el("input", { type: "checkbox" });
  const all = [
    editable ? null : el("p", { class: "banner" }, "The body is not text, or too large to edit here. It is sent unchanged."),
    parts.all,
    el("div", { class: "columns" }, field("To entity", to, "Empty sends it back to where it came from."), field("Keep the original", keep)),
  ];
  const sent = await form(`Edit and resend message ${found.seq}`, all, "Resend", (button) => {
    if (editable) parts.check(button);
    const texts = parts.texts();
    const changed = Object.fromEntries(Object.entries(texts).filter(([name, value]) => value !== null && value !== before[name]));
    const { changes, removed } = parts.changes();
    return tell("resend", { ...where, seq: found.seq, ...changed, ...parts.times(), properties: changes, removed_properties: removed, to: to.value, keep: keep.checked });
  });
  if (sent) note(`Sent message ${found.seq} again to '${sent.to}'.${sent.removed ? "" : " The original stays."}`);
  return sent;
}

/** The fields of both forms; `own` are the application properties of the original. */
function messageParts(values, sessionHint, own = []) {
  const body = values.body === null ? null : el("textarea", { rows: 6, spellcheck: "false", autofocus: true, value: values.body ?? "", oninput: () => tellFault() });
  const type = line(values.content_type, { list: "content-types", oninput: () => tellFault() });
  const types = el("datalist", { id: "content-types" }, ["application/json", "text/plain", "application/xml"].map((each) => el("option", { value: each })));
  const session = line(values.session_id, { maxlength: 128 });
  const id = line(values.message_id, { maxlength: 128 });
  const subject = line(values.subject);
  const correlation = line(values.correlation_id);
  const delay = el("input", { type: "number", min: 0, value: "0" });
  const life = el("input", { type: "number", min: 1, placeholder: "the entity's default" });
  const fault = el("p", { class: "wrong", role: "status" });
  const rows = el("div", { class: "rows" });
  const add = el("button", { type: "button", class: "plain", onclick: () => addRow().focus() }, "Add a property");
  let accepted = null;
  function addRow(name = "", kind = "", text = "") {
    const fixed = Boolean(kind) && !EDITABLE.has(kind);
    const title = line(name, { "aria-label": "Property name", placeholder: "name", readonly: Boolean(kind) });
    const value = line(text, { "aria-label": "Property value", placeholder: "value", readonly: fixed, title: fixed ? `A ${kind}: it is sent unchanged.` : null });
    const gone = el("button", { type: "button", class: "tool", "aria-label": "Remove the property", onclick: () => row.remove() }, "✕");
    const row = el("div", { class: "row" }, title, value, gone);
    row.origin = kind ? { name, kind, text } : null;
    rows.append(row);
    add.disabled = rows.children.length >= ROWS_MAX;
    return title;
  }
  own.forEach((each) => addRow(...each));
  function jsonFault() {
    if (!body || !/json/i.test(type.value) || !body.value.trim()) return "";
    try {
      JSON.parse(body.value);
    } catch (error) {
      return `The body is not valid JSON: ${error.message}`;
    }
    return "";
  }
  const tellFault = () => show(fault, jsonFault());
  const given = () => [...rows.children].map((row) => {
    const [name, value] = [...row.querySelectorAll("input")].map((input) => input.value);
    return { name, value, origin: row.origin };
  });
  const columns = el("div", { class: "columns" },
    field("Content type", type),
    field("Session id", session, sessionHint),
    field("Message id", id, "Generated if empty."),
    field("Subject", subject),
    field("Correlation id", correlation),
    field("Visible after, in seconds", delay),
    field("Time to live, in seconds", life));
  return {
    columns,
    all: [
      body ? field("Body", body) : null,
      fault,
      columns,
      types,
      el("fieldset", {}, el("legend", {}, "Application properties"),
        el("p", { class: "hint" }, "12, 1.5, true and false are numbers and booleans; in quotes, \"12\", they are strings."), rows, add),
    ],
    texts: () => ({ body: body ? body.value : null, content_type: type.value, session_id: session.value, message_id: id.value, subject: subject.value, correlation_id: correlation.value }),
    times: () => ({
      ...(Number(delay.value) > 0 ? { delay_s: Math.round(Number(delay.value)) } : {}),
      ...(Number(life.value) > 0 ? { time_to_live_s: Math.round(Number(life.value)) } : {}),
    }),
    properties: () => collected(given().filter(({ name }) => name).map(({ name, value }) => [name, literal(value)])),
    changes: () => {
      const now = given();
      const kept = new Set(now.map(({ name }) => name));
      const changed = now.filter(({ name, value, origin }) => name && !(origin && origin.text === value));
      return {
        changes: collected(changed.map(({ name, value, origin }) => [name, origin?.kind === "string" ? value : literal(value)])),
        removed: own.map(([name]) => name).filter((name) => !kept.has(name)),
      };
    },
    /** Warn about an invalid body before sending it; submitting the same body again sends it anyway. */
    check: (button) => {
      const wrong = jsonFault();
      if (!wrong || accepted === body.value) return;
      accepted = body.value;
      button.textContent = "Send anyway";
      throw new Error(`${wrong}. Correct it, change the content type, or send it anyway.`);
    },
  };
}

/** Names may be anything, `__proto__` too. */
function collected(pairs) {
  const found = Object.create(null);
  for (const [name, value] of pairs) found[name] = value;
  return found;
}

/** A value as meant: a number, a boolean, or a string, in quotes or not. */
export function literal(text) {
  try {
    const found = JSON.parse(text);
    if (typeof found === "number" && !(Number.isSafeInteger(found) || !Number.isInteger(found))) return text;
    if (["number", "boolean", "string"].includes(typeof found)) return found;
  } catch {
    // A string without quotes.
  }
  return text;
}
