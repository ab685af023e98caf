// The messages of an entity, page by page: searching, selecting, and commands on the selection.

import { ask, tell } from "./api.js";
import { form, note, sure, trying } from "./dialogs.js";
import { bytes, count, el, field, show, some, table, time } from "./dom.js";
import { download, messageDialog } from "./message.js";

const PAGE = 50;

export function messageList(content, page, namespace, entity, part) {
  const where = { namespace, entity: entity.path, part };
  const dead = part !== "messages";
  if (!entity.rights.includes("Listen")) {
    show(content, el("p", { class: "quiet" }, "You do not have the right Listen here: messages are not shown."));
    return null;
  }
  let from = "0";
  let earlier = [];
  let rows = [];
  let next = null;
  let reading = 0;
  let latest = entity;
  const chosen = new Set();
  const holder = el("div");
  const button = (text, work, kind = "plain") => el("button", { type: "button", class: kind, onclick: () => trying(work) }, text);
  const again = button("Read again", () => read());
  const hint = el("span", { class: "quiet", role: "status" });
  const back = button("Resubmit all", resubmit, "primary");
  const bury = button("Dead-letter", buryChosen);
  const remove = button("Delete selected", removeChosen, "danger-plain");
  const purge = button("Purge", purgeAll, "danger-plain");
  const save = button("Download", () => download(where, rows.filter((row) => !chosen.size || chosen.has(row.seq))));
  const stop = button("Stop", () => {
    reading += 1;
    stop.hidden = true;
  });
  stop.hidden = true;
  const pages = el("div", { class: "actions" });
  const finder = finderOf(where, entity, (jump) => {
    from = jump;
    earlier = [];
    return read();
  });
  show(content, finder.form, el("div", { class: "bar" }, again, stop, hint, el("span", { class: "push" }), save, back, bury, remove, purge), holder, pages);

  /** Read a page. A search continues by itself until the page is full or all messages were searched. */
  async function read() {
    const own = ++reading;
    const wanted = finder.wanted();
    const searching = Boolean(wanted.search || wanted.session);
    const found = [];
    let looked = 0;
    let at = from;
    do {
      const answer = await trying(() => ask("messages", { ...where, ...wanted, from: at }));
      if (!answer || !page.current()) return;
      if (own !== reading && !searching) return;
      found.push(...answer.rows);
      looked += answer.looked;
      at = answer.next;
      if (searching) show(hint, `Looked at ${some(looked, "message")}, found ${count(found.length)}.`);
      stop.hidden = !searching || at === null || own !== reading || found.length >= PAGE;
    } while (searching && own === reading && at !== null && found.length < PAGE);
    stop.hidden = true;
    rows = found;
    next = at;
    chosen.clear();
    if (!searching) show(hint);
    again.classList.remove("calls");
    draw();
  }

  function held() {
    return latest[{ messages: "active", dead: "dead", transfer: "transfer_dead" }[part]];
  }

  /** Update the buttons; the table stays as it is until it is reloaded. */
  function offer() {
    const can = (right) => entity.rights.includes(right);
    back.hidden = !dead || !can("Send") || !rows.length;
    back.textContent = chosen.size ? `Resubmit ${chosen.size} selected` : "Resubmit all";
    bury.hidden = dead || entity.kind === "topic" || !chosen.size;
    bury.textContent = `Dead-letter ${chosen.size} selected`;
    remove.hidden = !can("Manage") || !chosen.size;
    remove.textContent = `Delete ${chosen.size} selected`;
    save.hidden = !rows.length;
    save.textContent = chosen.size ? `Download ${chosen.size} selected` : "Download page";
    purge.hidden = entity.kind === "topic" || !can("Manage") || !held();
  }

  function draw() {
    offer();
    const wanted = finder.wanted();
    if (rows.length) show(holder, messageTable());
    else {
      show(holder, el("p", { class: "quiet empty" }, wanted.search || wanted.session || from !== "0" ? "No message matches." : dead ? "No dead letters."
        : entity.kind === "topic" ? "No scheduled messages. Published messages are in the subscriptions." : "No messages."));
    }
    show(
      pages,
      earlier.length ? button("Previous page", () => turn(-1)) : null,
      next !== null ? button("Next page", () => turn(1)) : null,
    );
  }

  function turn(step) {
    if (step > 0) {
      earlier.push(from);
      from = next;
    } else from = earlier.pop() ?? "0";
    return read();
  }

  const shownBody = (row) => (row.damaged ? el("strong", {}, "damaged, set aside") : row.unreadable ? el("em", {}, "unreadable") : el("code", { class: "preview" }, row.preview));
  const reason = (row) => el("span", { class: "one-line", title: `${row.reason ?? ""} ${row.description ?? ""}` },
    el("strong", {}, row.reason ?? "no reason given"), row.description ? el("span", { class: "quiet" }, ` ${row.description}`) : null);

  function messageTable() {
    const columns = [["Number", "number pick"], ...(dead ? [["Reason", "wide"]] : []), ["Message id"], ["Enqueued", "when"], ["Deliveries", "number"],
      ...(dead ? [] : [["Body size", "number"]]), ["Body", "wide"]];
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
    const made = table(dead ? "Dead letters" : "Messages", columns, rows.map((row) => {
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
      const number = el("button", {
        type: "button",
        class: "link",
        "data-row": true,
        "aria-label": `Message ${row.seq}`,
        onclick: () => trying(() => messageDialog(where, entity, rows, row.seq, read)),
      }, row.seq);
      return [
        [box, number],
        ...(dead ? [reason(row)] : []),
        [row.id ?? "", " ", row.session ? el("span", { class: "tag soft" }, `session ${row.session}`) : null,
          row.state === "active" ? null : el("span", { class: "tag warn" }, row.state)],
        time(row.enqueued_ms),
        count(row.deliveries),
        ...(dead ? [] : [bytes(row.body_bytes)]),
        shownBody(row),
      ];
    }), { class: dead ? "messages dead" : "messages" });
    made.querySelector("thead th").prepend(all);
    return made;
  }

  /** Run a command on the selected messages, report the outcome, reload. */
  async function withChosen(command, fields, done) {
    const answer = await tell(command, { ...where, numbers: [...chosen], ...fields });
    note(done(answer));
    if (answer.left) note(`${some(answer.left, "message")} stayed: locked by a receiver, or gone already.`, "bad");
    await read();
  }

  async function removeChosen() {
    const what = some(chosen.size, dead ? "dead letter" : "message");
    if (!await sure("Delete?", `${what} of '${entity.path}' will be deleted. This cannot be undone.`, "Delete")) return;
    await withChosen("remove", {}, (answer) => `Deleted ${some(answer.removed, "message")}.`);
  }

  async function buryChosen() {
    const reasonField = el("input", { type: "text", maxlength: 4096, autocomplete: "off", autofocus: true });
    const description = el("input", { type: "text", maxlength: 4096, autocomplete: "off" });
    await form(`Dead-letter ${some(chosen.size, "message")}?`, [field("Reason", reasonField), field("Description", description)], "Dead-letter", () =>
      withChosen("dead-letter", { reason: reasonField.value, description: description.value }, (answer) => `Dead-lettered ${some(answer.moved, "message")}.`), { class: "small" });
  }

  async function resubmit() {
    const numbers = chosen.size ? [...chosen] : null;
    const what = numbers ? some(numbers.length, "dead letter") : `all ${some(held(), "dead letter")}`;
    const yes = await sure("Resubmit?", `${what} of '${entity.path}' will go back to '${entity.path}' as if sent now, with no delivery counted.`, "Resubmit");
    if (!yes) return;
    const done = await tell("resubmit", { ...where, numbers });
    note(`Resubmitted ${some(done.resubmitted, "message")}.${done.more ? " There are more." : ""}`);
    if (done.refused) note(`${some(done.refused, "message")} could not go back: no session id, or not readable.`, "bad");
    await finder.first();
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
    await finder.first();
  }

  read();
  return {
    read,
    find: () => finder.focus(),
    stale: (now) => {
      if (now) latest = now;
      // Reloading an empty list costs nothing; somebody may be reading a full one.
      if (!rows.length && !finder.wanted().search) read();
      else {
        show(hint, "There is something new.");
        again.classList.add("calls");
        offer();
      }
    },
  };
}

/** The form above the list: text to search in ids, properties or bodies; a session; the first sequence number. */
function finderOf(where, entity, find) {
  const search = el("input", { type: "search", placeholder: "Search messages", "aria-label": "Search messages", autocomplete: "off", spellcheck: "false", maxlength: 2000 });
  const kind = el("select", { "aria-label": "Search in" }, [["", "anywhere"], ["id", "ids and subject"], ["property", "properties"], ["body", "body"]].map(([value, name]) => el("option", { value }, name)));
  const session = el("input", { type: "text", placeholder: "Session id", "aria-label": "Session id", list: "session-ids", autocomplete: "off", spellcheck: "false", maxlength: 128 });
  const ids = el("datalist", { id: "session-ids" });
  const from = el("input", { type: "text", inputmode: "numeric", pattern: "[0-9]*", placeholder: "From number", "aria-label": "From sequence number", autocomplete: "off", maxlength: 19, class: "short" });
  if (entity.sessions) ask("sessions", where).then((found) => show(ids, found.sessions.map((each) => el("option", { value: each }))), () => {});
  const go = () => trying(() => find(/^\d+$/.test(from.value.trim()) ? from.value.trim() : "0"));
  const made = el("form", {
    class: "bar finder",
    role: "search",
    onsubmit: (event) => {
      event.preventDefault();
      go();
    },
  }, search, kind, session, ids, from, el("button", { type: "submit", class: "plain" }, "Find"),
  el("button", { type: "reset", class: "tool", onclick: () => setTimeout(go, 0) }, "Clear"));
  const text = (input) => input.value.trim();
  return {
    form: made,
    first: go,
    focus: () => search.focus(),
    wanted: () => ({
      ...(text(search) ? { search: text(search), field: kind.value } : {}),
      ...(text(session) ? { session: session.value } : {}),
    }),
  };
}
