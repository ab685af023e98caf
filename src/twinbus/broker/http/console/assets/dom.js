// Creates elements from data. Data is always text: no code of the console turns a string into HTML.

const SVG = "http://www.w3.org/2000/svg";
// Control characters that reorder or hide the text around them, and invisible characters.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/;
const EACH_HIDDEN = new RegExp(`(${HIDDEN.source})`, "g");

const code = (character) => `U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Text with hidden characters spelled out, for attributes and titles. */
export const plain = (text) => String(text).replace(EACH_HIDDEN, (found) => `[${code(found)}]`);

/** Text as child nodes; each hidden character becomes a mark with its code. */
function visible(text) {
  if (!HIDDEN.test(text)) return text;
  return text.split(EACH_HIDDEN).map((part, at) => (at % 2 ? el("span", { class: "mark" }, code(part)) : part));
}

const readable = (children) => children.flat(9)
  .filter((child) => child !== null && child !== undefined && child !== false)
  .flatMap((child) => (child instanceof Node ? child : visible(String(child))));

/** An element with attributes, `on…` listeners, and children that are elements or text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else if (name === "checked") made.checked = value;
    else made.setAttribute(name, value === true ? "" : NAMED.has(name) ? plain(value) : String(value));
  }
  made.append(...readable(children).map((child) => (made.tagName === "OPTION" ? plain(child) : child)));
  return made;
}

const NAMED = new Set(["title", "aria-label", "placeholder"]);

/** Replace an element's children. */
export function show(parent, ...children) {
  parent.replaceChildren(...readable(children));
}

export const count = (number) => (number === undefined || number === null ? "–" : number.toLocaleString("en-US"));

export function bytes(number) {
  if (number === undefined || number === null) return "–";
  if (number < 1024) return `${number} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let at = -1;
  let size = number;
  do {
    size /= 1024;
    at += 1;
  } while (size >= 1024 && at < units.length - 1);
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${units[at]}`;
}

export function age(ms) {
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** A time in the reader's time zone, with date and zone; the title shows UTC. */
export function time(ms) {
  const moment = new Date(ms);
  if (Number.isNaN(moment.getTime())) return String(ms);
  const two = (number) => String(number).padStart(2, "0");
  const date = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  const clock = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  const utc = moment.toISOString();
  return el("time", { datetime: utc, title: utc }, el("span", {}, date), " ", el("span", {}, `${clock} ${zone(moment)}`));
}

function zone(moment) {
  const minutes = -moment.getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes ? `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}` : "UTC";
}

/** A sparkline: numbers over time, the newest last. */
export function sparkline(numbers, label) {
  const high = Math.max(1, ...numbers);
  const points = numbers.map((value, at) => `${at},${(20 - (value / high) * 18).toFixed(1)}`).join(" ");
  return svg("svg", { viewBox: `0 0 ${Math.max(1, numbers.length - 1)} 21`, preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": label },
    svg("polyline", { points, class: "spark-line" }));
}

/** "1 message", "2 messages". */
export const some = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

/** A table whose cells repeat their column's name, for narrow screens. Columns: [title, "number" or class]. */
export function table(caption, columns, rows, attributes = {}) {
  const head = columns.map(([title, kind]) => el("th", { scope: "col", class: kind }, title));
  return el(
    "table",
    attributes,
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, rows.map((cells) => line(columns, cells))),
  );
}

export function line(columns, cells, attributes = {}) {
  return el(
    "tr",
    attributes,
    cells.map((cell, at) => el(at === 0 ? "th" : "td", {
      scope: at === 0 ? "row" : null,
      class: columns[at][1],
      "data-title": columns[at][0],
    }, cell)),
  );
}

export function field(label, input, hint) {
  const id = `f${++field.count}`;
  input.id = id;
  const below = hint ? el("span", { class: "hint", id: `${id}h` }, hint) : null;
  if (hint) input.setAttribute("aria-describedby", `${id}h`);
  return el("div", { class: input.type === "checkbox" ? "field check" : "field" }, el("label", { for: id }, label), input, below);
}
field.count = 0;
