// The ledger's last hour: operations by kind and by minute.

import { ask } from "./api.js";
import { trying } from "./dialogs.js";
import { count, el, show, svg, table } from "./dom.js";
import { tabs } from "./entities.js";

const EVERY_MS = 10000;

export async function ledgerPage(page, namespace) {
  const content = el("div");
  show(page.main, tabs(namespace, "Ledger"), el("h1", {}, "Ledger"), content);
  let timer = 0;
  const look = async () => {
    const found = await trying(() => ask("ledger", { namespace }));
    if (!page.current()) return;
    if (found) draw(content, found);
    timer = setTimeout(look, EVERY_MS);
  };
  page.onleave(() => clearTimeout(timer));
  page.keys({ r: look });
  await look();
}

function draw(content, found) {
  const number = (title, value, kind) => el("div", { class: kind }, el("dt", {}, title), el("dd", {}, count(value)));
  const others = Object.entries(found.others);
  show(
    content,
    el("p", { class: "quiet" }, found.since === "hour" ? "Operations that the broker counted in the last hour." : "There is no ledger: operations since the broker started.",
      found.partial ? " It was too much to read: the oldest part is left out." : ""),
    el("dl", { class: "numbers strip" },
      number("Operations", found.operations),
      number("Units", found.units),
      number("Pings", found.pings),
      number("Empty polls", found.empty_polls),
      number("Failed", found.failed, found.failed ? "alarm" : null)),
    found.minutes.length ? chart(found.minutes, found.first_ms) : null,
    found.kinds.length
      ? table("Operations by kind", [["Kind", "name"], ["Operations", "number"], ["Units", "number"], ["Failed", "number"]],
        found.kinds.map((each) => [each.kind, count(each.count), count(each.units), count(each.failed)]))
      : el("p", { class: "quiet empty" }, "No operations."),
    others.length ? el("p", { class: "hint" }, "Counted by others in the same folder: ", others.map(([source, value]) => `${source} ${count(value)}`).join(", "), ".") : null,
  );
}

function chart(minutes, first) {
  const high = Math.max(1, ...minutes);
  const width = 10;
  const bars = minutes.map((value, at) => {
    const height = value ? Math.max(1.5, (value / high) * 80) : 0;
    const when = new Date(first + at * 60000).toTimeString().slice(0, 5);
    return svg("rect", { x: at * width + 1, y: 80 - height, width: width - 2, height, rx: 1.5, class: "minute" }, svg("title", {}, `${when}: ${count(value)}`));
  });
  const label = `Operations per minute over the last hour, at most ${count(high)}.`;
  return el(
    "figure",
    { class: "chart" },
    svg("svg", { viewBox: `0 0 ${minutes.length * width} 82`, preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("line", { x1: 0, x2: minutes.length * width, y1: 81, y2: 81, class: "ground" }), bars),
    el("figcaption", { class: "quiet" }, "Operations per minute over the last hour; the highest bar is ", count(high), "."),
  );
}
