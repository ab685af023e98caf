// Requests and commands to the broker, and the one stream of live numbers.

import { note } from "./dialogs.js";

const BASE = "/console/$api/";
let token = "";
let stream = null;
// The current stream: view, query, and the callback for each answer.
let watching = null;
let onRefused = () => {};

export class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** `work` is called when the login has expired. */
export function whenLoggedOut(work) {
  onRefused = work;
}

async function read(response, entering = false) {
  let found = null;
  try {
    found = await response.json();
  } catch {
    throw new Refusal(response.status, `The broker answered with status ${response.status}.`);
  }
  if (!response.ok) {
    const refusal = new Refusal(response.status, found.error ?? `Status ${response.status}.`);
    if (response.status === 401 && !entering) onRefused(refusal);
    throw refusal;
  }
  return found;
}

async function reach(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", redirect: "error", ...options });
  } catch {
    throw new Refusal(0, "The broker does not answer. Is it still running?");
  }
}

export const address = (view, query = {}) => `${BASE}${view}?${new URLSearchParams(query)}`;

export async function ask(view, query = {}) {
  return read(await reach(address(view, query), {}));
}

export async function tell(command, fields) {
  const headers = { "Content-Type": "application/json", "X-Console-Token": token };
  const response = await reach(BASE + command, { method: "POST", headers, body: JSON.stringify(fields) });
  const found = await read(response, command === "login");
  if (command === "login") token = found.token;
  return found;
}

/** Load what the page starts with; remembers the token for commands. */
export async function greet() {
  const found = await ask("login");
  token = found.token ?? "";
  return found;
}

/** Show a view now and whenever it changes; resolves after the first time. Only one stream is open at a time. */
export function watch(view, query, work) {
  unwatch();
  watching = [view, query, work];
  const own = new EventSource(address("live", { view, ...query }));
  stream = own;
  return new Promise((resolve, reject) => {
    own.onopen = () => state("live");
    own.onmessage = (event) => {
      if (stream !== own) return;
      work(JSON.parse(event.data));
      resolve();
    };
    own.addEventListener("end", (event) => {
      own.close();
      if (stream !== own) return;
      state("off");
      const { status } = JSON.parse(event.data);
      if (status === 401) onRefused(new Refusal(401, "Your login has expired. Log in again."));
      else note("What is shown here no longer exists.", "bad");
    });
    own.onerror = async () => {
      if (stream !== own) return;
      // The browser retries by itself, unless the answer was an error; it does not say which error.
      if (own.readyState !== EventSource.CLOSED) {
        state("lost");
        return;
      }
      state("off");
      try {
        const found = await ask(view, query);
        if (stream === own) work(found);
        resolve();
      } catch (error) {
        reject(error);
      }
    };
  });
}

export function unwatch() {
  if (stream) stream.close();
  stream = null;
  watching = null;
  state("");
}

// A browser opens at most six connections to a broker across all tabs, so a hidden tab closes its stream.
function look() {
  if (!watching) return;
  if (document.hidden) stream.close();
  else if (stream.readyState === EventSource.CLOSED) watch(...watching).catch(() => {});
}
document.addEventListener("visibilitychange", look);
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", look);

const WORDS = { live: "live", lost: "reconnecting …", off: "not live", "": "" };

function state(name) {
  const shown = document.getElementById("live");
  shown.dataset.state = name;
  shown.textContent = WORDS[name];
}
