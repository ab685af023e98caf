// Messages of an entity, page by page, and one of them with everything in it.

import { address, ask, tell } from "./api.js";
import { bodyView } from "./body.js";
import { note, open, sure, trying } from "./dialogs.js";
import { bytes, count, el, show, some, table, time } from "./dom.js";

export function messageList(content, page, namespace, entity, part) {
  const where = { namespace, entity: entity.path, part };
  const dead = part !== "messages";
  if (!entity.rights.includes("Listen")) {
    show(content, el("p", { class: "quiet" }, "Your key does not have the right Listen here: messages are not shown."));
    return null;
  }
  let from = "0";
  let earlier = [];
  let rows = [];
  let next = null;
  const chosen = new Set();
  const holder = el("div");
  const again = el("button", { type: "button", class: "plain", onclick: () => read() }, "Read again");
  const hint = el("span", { class: "quiet", role: "status" });
  const back = el("button", { type: "button", class: "primary", hidden: true, onclick: () => trying(resubmit) }, "Resubmit all");
  const purge = el("button", { type: "button", class: "danger-plain", hidden: true, onclick: () => trying(purgeAll) }, "Purge");
  const pages = el("div", { class: "actions" });
  show(content, el("div", { class: "bar" }, again, hint, el("span", { class: "push" }), back, purge), holder, pages);
  let latest = entity;

  async function read() {
    const found = await trying(() => ask("messages", { ...where, from }));
    if (!found || !page.current()) return;
    rows = found.rows;
    next = found.next;
    chosen.clear();
    hint.textContent = "";
    again.classList.remove("calls");
    draw();
  }

  function held() {
    return latest[{ messages: "active", dead: "dead", transfer: "transfer_dead" }[part]];
  }

  /** The buttons go with the numbers; the table stays as it is until it is read again. */
  function offer() {
    const can = (right) => entity.rights.includes(right);
    back.hidden = !dead || !can("Send") || !rows.length;
    back.textContent = chosen.size ? `Resubmit ${chosen.size} selected` : "Resubmit all";
    purge.hidden = entity.kind === "topic" || !can("Manage") || !held();
  }

  function draw() {
    offer();
    if (!rows.length) {
      show(holder, el("p", { class: "quiet empty" }, dead ? "No dead letters." : entity.kind === "topic"
        ? "Nothing is scheduled. What was published is in the subscriptions." : "No messages."));
    } else {
      show(holder, dead ? deadTable() : plainTable());
    }
    show(
      pages,
      earlier.length ? el("button", { type: "button", class: "plain", onclick: () => turn(-1) }, "Previous") : null,
      next ? el("button", { type: "button", class: "plain", onclick: () => turn(1) }, "Next") : null,
    );
  }

  function turn(step) {
    if (step > 0) {
      earlier.push(from);
      from = next;
    } else from = earlier.pop() ?? "0";
    read();
  }

  const number = (row) => el("button", {
    type: "button",
    class: "link",
    "data-row": true,
    "aria-label": `Message ${row.seq}`,
    onclick: () => trying(() => detail(where, row.seq)),
  }, row.seq);
  const preview = (row) => (row.damaged ? el("strong", {}, "damaged, set aside") : row.unreadable ? el("em", {}, "unreadable") : el("code", { class: "preview" }, row.preview));

  function plainTable() {
    const columns = [["Number", "number"], ["Message id"], ["Enqueued"], ["Deliveries", "number"], ["Size", "number"], ["Body", "wide"]];
    return table("Messages", columns, rows.map((row) => [
      number(row),
      [row.id, " ", row.session ? el("span", { class: "tag soft" }, `session ${row.session}`) : null,
        row.state === "active" ? null : el("span", { class: "tag warn" }, row.state)],
      time(row.enqueued_ms),
      count(row.deliveries),
      bytes(row.bytes),
      preview(row),
    ]), { class: "messages" });
  }

  function deadTable() {
    const columns = [["Number", "number pick"], ["Reason", "wide"], ["Message id"], ["Enqueued"], ["Deliveries", "number"], ["Body", "wide"]];
    const boxes = [];
    const all = el("input", {
      type: "checkbox",
      "aria-label": "Select all on this page",
      onchange: () => {
        boxes.forEach((box) => {
          box.checked = all.checked;
        });
        rows.forEach((row) => (all.checked ? chosen.add(row.seq) : chosen.delete(row.seq)));
        offer();
      },
    });
    const made = table("Dead letters", columns, rows.map((row) => {
      const box = el("input", {
        type: "checkbox",
        "aria-label": `Select message ${row.seq}`,
        onchange: () => {
          if (box.checked) chosen.add(row.seq);
          else chosen.delete(row.seq);
          all.checked = chosen.size === rows.length;
          offer();
        },
      });
      boxes.push(box);
      return [
        [box, number(row)],
        [el("strong", {}, row.reason ?? "no reason given"), row.description ? el("div", { class: "quiet" }, row.description) : null],
        row.id,
        time(row.enqueued_ms),
        count(row.deliveries),
        preview(row),
      ];
    }), { class: "messages dead" });
    made.querySelector("thead th").prepend(all);
    return made;
  }

  async function resubmit() {
    const numbers = chosen.size ? [...chosen] : null;
    const what = numbers ? some(numbers.length, "dead letter") : `all ${some(held(), "dead letter")}`;
    const yes = await sure("Resubmit?", `${what} of '${entity.path}' will be there again as if sent now, with no delivery counted.`, "Resubmit");
    if (!yes) return;
    const done = await tell("resubmit", { ...where, numbers });
    note(`Resubmitted ${some(done.resubmitted, "message")}.${done.more ? " There are more." : ""}`);
    if (done.refused) note(`${some(done.refused, "message")} could not go back: no session id, or not readable.`, "bad");
    from = "0";
    earlier = [];
    await read();
  }

  async function purgeAll() {
    const what = some(held(), dead ? "dead letter" : "message");
    const lost = !dead && entity.path.toLowerCase().includes("/x-servicebus-transfer/")
      ? " They are diverted messages that have not come home: they would be lost."
      : "";
    const text = `${what} of '${entity.path}' will be deleted, except those that a receiver has locked. This cannot be undone.${lost}`;
    const yes = await sure("Purge?", text, "Purge");
    if (!yes) return;
    const done = await tell("purge", where);
    note(`Purged ${some(done.purged, "message")}.${done.more ? " There are more: purge again." : ""}`);
    from = "0";
    earlier = [];
    await read();
  }

  read();
  return {
    read,
    stale: (now) => {
      if (now) latest = now;
      // An empty list costs nothing to read again; a full one is somebody's reading.
      if (!rows.length) read();
      else {
        hint.textContent = "There is something new.";
        again.classList.add("calls");
        offer();
      }
    },
  };
}

async function detail(where, seq) {
  const found = await ask("message", { ...where, seq });
  const pairs = (title, lines) => (lines.length ? el("section", {}, el("h3", {}, title), el("dl", { class: "pairs" }, lines.map(([name, type, text]) => [
    el("dt", {}, name, " ", type ? el("span", { class: "type" }, type) : null),
    el("dd", {}, text),
  ]))) : null);
  const times = [["enqueued", "", time(found.enqueued_ms)], ...(found.expires_ms ? [["expires", "", time(found.expires_ms)]] : [])];
  open(`Message ${found.seq}`, () => el(
    "div",
    { class: "detail" },
    found.reason || found.description ? el("p", { class: "banner" }, el("strong", {}, found.reason ?? ""), found.description ? ` ${found.description}` : "") : null,
    found.unreadable ? el("p", { class: "banner" }, "The message is not valid AMQP. Its bytes are shown below.") : null,
    bodyView(found.body, address("body", { ...where, seq })),
    pairs("Application properties", found.application),
    pairs("Properties", found.properties),
    pairs("System", [...times, ...found.system]),
  ), { class: "large" });
}
