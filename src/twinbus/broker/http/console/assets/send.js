// The form for a test message.

import { tell } from "./api.js";
import { form, note } from "./dialogs.js";
import { el, field, some } from "./dom.js";

const ROWS_MAX = 200;

export async function sendMessage(namespace, entity) {
  const body = el("textarea", { rows: 6, spellcheck: "false", autofocus: true });
  const type = el("input", { type: "text", value: "application/json", list: "content-types", autocomplete: "off", spellcheck: "false" });
  const types = el("datalist", { id: "content-types" }, ["application/json", "text/plain", "application/xml"].map((each) => el("option", { value: each })));
  const session = el("input", { type: "text", maxlength: 128, autocomplete: "off", spellcheck: "false" });
  const id = el("input", { type: "text", maxlength: 128, autocomplete: "off", spellcheck: "false" });
  const subject = el("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const copies = el("input", { type: "number", min: 1, max: 100, value: "1" });
  const delay = el("input", { type: "number", min: 0, value: "0" });
  const rows = el("div", { class: "rows" });
  const add = el("button", { type: "button", class: "plain", onclick: () => addRow().focus() }, "Add a property");
  function addRow() {
    const name = el("input", { type: "text", "aria-label": "Property name", placeholder: "name", spellcheck: "false" });
    const value = el("input", { type: "text", "aria-label": "Property value", placeholder: "value", spellcheck: "false" });
    const gone = el("button", { type: "button", class: "tool", "aria-label": "Remove the property", onclick: () => row.remove() }, "✕");
    const row = el("div", { class: "row" }, name, value, gone);
    rows.append(row);
    add.disabled = rows.children.length >= ROWS_MAX;
    return name;
  }
  const parts = [
    field("Body", body),
    el("div", { class: "columns" },
      field("Content type", type),
      field("Session id", session, entity.sessions ? "Needed here." : null),
      field("Message id", id, "Made up when empty."),
      field("Subject", subject),
      field("Copies", copies),
      field("Visible after, in seconds", delay)),
    types,
    el("fieldset", {}, el("legend", {}, "Application properties"),
      el("p", { class: "hint" }, "12, 1.5, true and false are numbers and booleans; in quotes, \"12\", they are texts."), rows, add),
  ];
  const sent = await form(`Send to ${entity.path}`, parts, "Send", () => {
    const properties = Object.create(null);
    for (const row of rows.children) {
      const [name, value] = row.querySelectorAll("input");
      if (name.value) properties[name.value] = literal(value.value);
    }
    return tell("send", {
      namespace,
      entity: entity.path,
      body: body.value,
      content_type: type.value,
      session_id: session.value,
      message_id: id.value,
      subject: subject.value,
      copies: Number(copies.value),
      delay_s: Math.round(Number(delay.value)),
      properties,
    });
  });
  if (sent) note(`Sent ${some(sent.sent, "message")} to '${entity.path}'.`);
  return sent;
}

/** A value as it was meant: a number, a boolean, or a text, in quotes or not. */
export function literal(text) {
  try {
    const found = JSON.parse(text);
    if (typeof found === "number" && !(Number.isSafeInteger(found) || !Number.isInteger(found))) return text;
    if (["number", "boolean", "string"].includes(typeof found)) return found;
  } catch {
    // A text without quotes.
  }
  return text;
}
