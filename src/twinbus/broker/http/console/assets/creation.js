// The form for a new queue, topic or subscription.

import { tell } from "./api.js";
import { form, note } from "./dialogs.js";
import { el, field } from "./dom.js";

/** `topic` is the topic of a new subscription. */
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
    field("Dead-letter expired messages", expiry),
    field("Deliveries before dead-lettering", deliveries),
    field("Lock duration, in seconds", lock),
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
