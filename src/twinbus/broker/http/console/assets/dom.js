// Elements made from data. Data is only ever text: nothing here, and nothing elsewhere, makes HTML of a string.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes by name, `on…` as listeners, and children that are elements or text. */
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
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Put others in the place of an element's children. */
export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
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

export function time(ms) {
  const moment = new Date(ms);
  if (Number.isNaN(moment.getTime())) return String(ms);
  return el("time", { datetime: moment.toISOString(), title: moment.toISOString() }, clock(moment));
}

function clock(moment) {
  const two = (number) => String(number).padStart(2, "0");
  const hours = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  if (moment.toDateString() === new Date().toDateString()) return hours;
  return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${hours}`;
}

/** "1 message", "2 messages". */
export const some = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

/** A table whose cells carry their column's name, for narrow screens. Columns: [title, "number" or class]. */
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
