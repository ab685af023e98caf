// The page's frame: routing, breadcrumbs, theme, keyboard shortcuts.
//
// #/                        the namespaces
// #/n/NAME                  a namespace's entities      (also /connections, /backlog, /ledger)
// #/n/NAME/e/PATH/PART      an entity: subscriptions, messages, dead, transfer, receive, about

import { greet, tell, unwatch, whenLoggedOut } from "./api.js";
import { backlogPage } from "./backlog.js";
import { connectionsPage } from "./connections.js";
import { note, open, trying } from "./dialogs.js";
import { el, plain, show } from "./dom.js";
import { entitiesPage } from "./entities.js";
import { entityPage } from "./entity.js";
import { ledgerPage } from "./ledger.js";
import { loginPage } from "./login.js";
import { namespacesPage } from "./namespaces.js";

const main = document.getElementById("main");
let turn = 0;
let leave = null;
let shortcuts = {};
let greeting = {};
let entered = 0;
let shown = false;

const SHORTCUTS = [
  ["?", "show this list"],
  ["/", "go to the filter"],
  ["n", "new entity"],
  ["s", "send a test message"],
  ["r", "reload the list"],
  ["← →", "previous and next message in a dialog"],
  ["t", "light or dark"],
  ["u", "up: to the namespace, to all namespaces"],
  ["↑ ↓", "move between rows of a list"],
  ["Esc", "close a dialog"],
];

/** What a page gets: where to draw, whether it is still shown, and its keyboard shortcuts. */
function frame() {
  const own = ++turn;
  return {
    main,
    current: () => own === turn,
    keys: (found) => {
      shortcuts = found;
    },
    onleave: (work) => {
      leave = work;
    },
  };
}

function parts() {
  const hash = location.hash.startsWith("#/") ? location.hash.slice(2) : "";
  return hash.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return "";
    }
  });
}

async function route() {
  if (leave) leave();
  leave = null;
  shortcuts = {};
  unwatch();
  document.querySelectorAll("dialog").forEach((dialog) => dialog.close());
  const page = frame();
  const [kind, name, what, path, part] = parts();
  trail(kind === "n" ? name : "", what === "e" ? path : "");
  try {
    if (kind !== "n") await namespacesPage(page);
    else if (what === "e") await entityPage(page, name, path, part);
    else if (what === "connections") await connectionsPage(page, name);
    else if (what === "backlog") await backlogPage(page, name);
    else if (what === "ledger") await ledgerPage(page, name);
    else await entitiesPage(page, name);
  } catch (error) {
    if (page.current() && error.status !== 401) {
      show(main, el("h1", {}, "That did not work"), el("p", { role: "alert" }, error.message),
        el("p", {}, el("a", { href: "#/" }, "All namespaces")));
    }
  }
  // The link that led here may be gone: let the next Tab start from the new page.
  if (page.current() && shown && document.activeElement === document.body) main.focus({ preventScroll: true });
  shown = true;
}

function trail(namespace, entity) {
  const steps = [];
  if (namespace) {
    const href = `#/n/${encodeURIComponent(namespace)}`;
    steps.push(el("a", { href, "aria-current": entity ? null : "page" }, namespace));
  }
  if (entity) steps.push(el("a", { href: location.hash, "aria-current": "page" }, entity));
  show(document.getElementById("trail"), steps);
  document.title = plain([entity, namespace, "Twinbus console"].filter(Boolean).join(" · "));
}

/** Ask for a key or an account, for this or another namespace; continue afterwards. */
async function askForKey(namespace = "") {
  const page = frame();
  unwatch();
  document.querySelectorAll("dialog").forEach((dialog) => dialog.close());
  await remember();
  if (!page.current()) return;
  if (!greeting.dev) loginPage(page, greeting, namespace || greeting.namespace, start);
  else if (Date.now() - entered > 3000) {
    // Another broker answers by now, and it needs no key.
    entered = Date.now();
    await route();
  } else show(main, el("p", { role: "alert" }, "The console needs a cookie, but your browser does not store cookies for this page."));
}

async function remember() {
  greeting = await greet();
  document.getElementById("logout").hidden = greeting.dev || !greeting.token;
}

async function start() {
  await remember();
  // Back from an identity provider without success.
  const problem = greeting.problem;
  if (problem && !greeting.dev) loginPage(frame(), greeting, problem.namespace, start, problem.text);
  else if (greeting.token) await route();
  else await askForKey();
}

// --- theme ------------------------------------------------------------------------------------------------------------

const system = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  return document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
}

function nameTheme() {
  const other = theme() === "dark" ? "Light" : "Dark";
  const button = document.getElementById("theme");
  button.textContent = other;
  button.setAttribute("aria-label", `${other} colours`);
}

function switchTheme() {
  const wanted = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = wanted;
  try {
    localStorage.setItem("twinbus-theme", wanted);
  } catch {
    // Without storage it lasts as long as the page.
  }
  nameTheme();
}

// --- keys -------------------------------------------------------------------------------------------------------------

function listShortcuts() {
  open("Keyboard shortcuts", () => el("dl", { class: "keys" }, SHORTCUTS.map(([key, does]) => [
    el("dt", {}, key.split(" ").map((each) => el("kbd", {}, each))),
    el("dd", {}, does),
  ])), { class: "small" });
}

function up() {
  const [kind, name, what] = parts();
  location.hash = kind === "n" && what ? `#/n/${encodeURIComponent(name)}` : "#/";
}

function stepRow(step) {
  const stops = [...main.querySelectorAll("tbody [data-row]")];
  if (!stops.length) return false;
  const at = stops.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : stops.length - 1) : Math.min(Math.max(at + step, 0), stops.length - 1);
  stops[next].focus();
  return true;
}

const ALWAYS = { "?": listShortcuts, t: switchTheme, u: up };

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const inTable = event.target === document.body || event.target === main || event.target.closest?.("table");
    if (inTable && stepRow(event.key === "ArrowDown" ? 1 : -1)) event.preventDefault();
    return;
  }
  const work = shortcuts[event.key] ?? ALWAYS[event.key];
  if (work) {
    event.preventDefault();
    work();
  }
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", listShortcuts);
document.getElementById("logout").addEventListener("click", () => trying(async () => {
  await tell("logout", {});
  history.replaceState(null, "", "#/");
  trail("", "");
  await askForKey();
}));
system.addEventListener("change", nameTheme);
addEventListener("hashchange", route);
whenLoggedOut(() => trying(() => askForKey(parts()[0] === "n" ? parts()[1] : "")));
nameTheme();
start().catch((error) => {
  if (error.status !== 401) note(error.message, "bad");
});
