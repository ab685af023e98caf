// Logging in to a namespace with an account of its identity provider, with a policy's name and key, or with a connection
// string.

import { address, tell } from "./api.js";
import { el, field, show } from "./dom.js";

/** `greeting` has the visible namespaces, `wanted` is the one to log in to, `problem` says why a sign-in failed. */
export function loginPage(page, greeting, wanted, done, problem = "") {
  const names = greeting.namespaces;
  const account = el("div", { class: "account" });
  // Another namespace may have another provider, or none.
  const offer = () => {
    const provider = greeting.sign_in?.[namespace.value];
    show(account, provider
      ? [
          el("a", { class: "primary button", href: address("sign-in", { namespace: namespace.value }) }, `Sign in with ${provider}`),
          el("p", { class: "or" }, "or with a key"),
        ]
      : null);
    return provider;
  };
  const namespace = el("select", { onchange: offer }, names.map((name) => el("option", { value: name, selected: name === wanted }, name)));
  const policy = el("input", { type: "text", value: "RootManageSharedAccessKey", autocomplete: "username", spellcheck: "false" });
  const key = el("input", { type: "password", autocomplete: "current-password" });
  const text = el("input", { type: "password", autocomplete: "off", placeholder: "Endpoint=sb://…" });
  const wrong = el("p", { class: "wrong", role: "alert" }, problem);
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
    el("p", { class: "quiet" }, "Your roles or your policy decide what you can see and do: Listen to view messages, Send to send them, Manage for everything else."),
    names.length > 1 ? field("Namespace", namespace) : el("p", {}, "Namespace ", el("strong", {}, names[0])),
    problem ? wrong : null,
    account,
    field("Policy", policy),
    field("Key", key),
    el("p", { class: "or" }, "or"),
    field("Connection string", text, "One with SharedAccessKeyName and SharedAccessKey."),
    problem ? null : wrong,
    el("div", { class: "actions" }, button),
  );
  show(page.main, form);
  if (offer()) account.querySelector("a").focus();
  else key.focus();
}
