// A message's body as text, JSON or bytes. The page always inserts it as text.

import { bytes, el, show } from "./dom.js";

export function decoded(base64) {
  const raw = atob(base64);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) found[at] = raw.charCodeAt(at);
  return found;
}

/** Bytes as text, or null if they are not UTF-8. The last character may be cut off. */
export function textOf(content, whole) {
  for (let cut = 0; cut <= (whole ? 0 : 3) && cut <= content.length; cut += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(content.subarray(0, content.length - cut));
    } catch {
      // Not UTF-8, or cut inside a character.
    }
  }
  return null;
}

// Deeper lines are not indented any further: with thousands of levels, most of the page would be spaces.
const INDENTED_LEVELS_MAX = 40;

/** JSON with line breaks and indentation. Tokens are not parsed, because JavaScript cannot represent 64-bit numbers. */
export function indented(text) {
  const found = [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, INDENTED_LEVELS_MAX))}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  tokens.forEach((token, at) => {
    if (token === "{" || token === "[") {
      const empty = tokens[at + 1] === "}" || tokens[at + 1] === "]";
      found.push(token);
      depth += 1;
      if (!empty) found.push(line());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const empty = tokens[at - 1] === "{" || tokens[at - 1] === "[";
      if (!empty) found.push(line());
      found.push(token);
    } else if (token === ",") found.push(`,${line()}`);
    else if (token === ":") found.push(": ");
    else found.push(token);
  });
  return found.join("");
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return /^\s*[{["]/.test(text);
  } catch {
    return false;
  }
}

export function hex(content) {
  const lines = [];
  for (let at = 0; at < content.length; at += 16) {
    const part = content.subarray(at, at + 16);
    const numbers = Array.from(part, (each) => each.toString(16).padStart(2, "0"));
    const letters = Array.from(part, (each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "."));
    const left = numbers.slice(0, 8).join(" ").padEnd(23);
    const right = numbers.slice(8).join(" ").padEnd(23);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${left}  ${right}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

/** The body with a switch between its forms, and a download link. */
export function bodyView(body, download) {
  const content = decoded(body.base64);
  const whole = body.shown_bytes === body.bytes;
  const text = textOf(content, whole);
  const forms = [];
  if (text !== null && whole && isJson(text)) forms.push(["JSON", () => indented(text)]);
  if (text !== null) forms.push(["Text", () => text]);
  forms.push(["Hex", () => hex(content)]);
  const shown = el("pre", { class: "body", tabindex: "0", "aria-label": "Message body" });
  const buttons = forms.map(([name, make]) => el("button", {
    type: "button",
    class: "segment",
    onclick: () => pick(name, make),
  }, name));
  function pick(name, make) {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
    show(shown, content.length ? make() : "(empty)");
  }
  pick(...forms[0]);
  return el(
    "section",
    { "aria-label": "Body" },
    el(
      "div",
      { class: "bar" },
      el("div", { class: "segments", role: "group", "aria-label": "Show the body as" }, buttons),
      el("span", { class: "quiet" }, `${body.kind}, ${bytes(body.size)}`),
      download ? el("a", { href: download, download: true, class: "push" }, "Download") : null,
    ),
    whole ? null : el("p", { class: "hint" }, `Only the first ${bytes(body.shown_bytes)} are shown.`),
    shown,
  );
}
