// Questions and commands to the broker, and the one stream of live numbers.

const BASE = "/console/$api/";
let token = "";
let stream = null;
let onRefused = () => {};

export class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** `work` is called when the login is over. */
export function whenLoggedOut(work) {
  onRefused = work;
}

async function read(response) {
  let found = null;
  try {
    found = await response.json();
  } catch {
    throw new Refusal(response.status, `The broker answered with status ${response.status}.`);
  }
  if (!response.ok) {
    const refusal = new Refusal(response.status, found.error ?? `Status ${response.status}.`);
    if (response.status === 401) onRefused(refusal);
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
  const found = await read(await reach(BASE + command, { method: "POST", headers, body: JSON.stringify(fields) }));
  if (command === "login") token = found.token;
  return found;
}

/** What the page begins with; remembers the token for commands. */
export async function greet() {
  const found = await ask("login");
  token = found.token ?? "";
  return found;
}

/** Show a view now and whenever it changes. Only one stream is open at a time. */
export function watch(view, query, work) {
  unwatch();
  const own = new EventSource(address("live", { view, ...query }));
  stream = own;
  own.onopen = () => state("live");
  own.onmessage = (event) => {
    if (stream === own) work(JSON.parse(event.data));
  };
  own.addEventListener("end", (event) => {
    own.close();
    state("off");
    const { status } = JSON.parse(event.data);
    if (status === 401) onRefused(new Refusal(401, "The login is over: log in again."));
  });
  own.onerror = () => {
    // The browser tries again by itself, unless the answer was a refusal.
    if (stream === own) state(own.readyState === EventSource.CLOSED ? "off" : "lost");
  };
}

export function unwatch() {
  if (stream) stream.close();
  stream = null;
  state("");
}

const WORDS = { live: "live", lost: "reconnecting …", off: "not live", "": "" };

function state(name) {
  const shown = document.getElementById("live");
  shown.dataset.state = name;
  shown.textContent = WORDS[name];
}
