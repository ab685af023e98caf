// Logging in to a namespace with a policy's name and key, or with a connection string.

import { tell } from "./api.js";
import { el, field, show } from "./dom.js";

/** `names` are the visible namespaces, `wanted` the one that needs a key. */
export function loginPage(page, names, wanted, done) {
  const namespace = el("select", {}, names.map((name) => el("option", { value: name, selected: name === wanted }, name)));
  const policy = el("input", { type: "text", value: "RootManageSharedAccessKey", autocomplete: "username", spellcheck: "false" });
  const key = el("input", { type: "password", autocomplete: "current-password" });
  const text = el("input", { type: "password", autocomplete: "off", placeholder: "Endpoint=sb://…" });
  const wrong = el("p", { class: "wrong", role: "alert" });
  const button = el("button", { type: "submit", class: "primary" }, "Log in");
  const form = el(
    "form",
    {
      class: "card login",
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        wrong.textContent = "";
        const given = text.value.trim()
          ? { connection_string: text.value }
          : { policy: policy.value, key: key.value };
        try {
          await tell("login", { namespace: namespace.value, ...given });
          await done();
        } catch (error) {
          wrong.textContent = error.message;
          button.disabled = false;
          key.focus();
        }
      },
    },
    el("h1", {}, "Log in"),
    el("p", { class: "quiet" }, "Your policy decides what you can see and do: Listen to view messages, Send to send them, Manage for everything else."),
    names.length > 1 ? field("Namespace", namespace) : el("p", {}, "Namespace ", el("strong", {}, names[0])),
    field("Policy", policy),
    field("Key", key),
    el("p", { class: "or" }, "or"),
    field("Connection string", text, "One with SharedAccessKeyName and SharedAccessKey."),
    wrong,
    el("div", { class: "actions" }, button),
  );
  show(page.main, form);
  key.focus();
}
