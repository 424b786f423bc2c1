// Shows the sections of a state as tables and lists.

// element returns an element with attributes and children, which are elements or texts.
export function element(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== ""));
  return e;
}

// age returns how long ago a time in seconds was, or is in the future.
export function age(seconds) {
  let s = Math.round(Date.now() / 1000 - seconds);
  const sign = s < -1 ? "in " : "";
  s = Math.abs(s);
  if (s < 120) return `${sign}${s} s`;
  if (s < 7200) return `${sign}${Math.round(s / 60)} min`;
  if (s < 172800) return `${sign}${Math.round(s / 3600)} h`;
  return `${sign}${Math.round(s / 86400)} d`;
}

function since(seconds) {
  if (!seconds) return "";
  const e = element("time", { "data-since": seconds, datetime: new Date(seconds * 1000).toISOString() }, age(seconds));
  e.title = new Date(seconds * 1000).toLocaleString();
  return e;
}

// ages brings all ages up to date.
export function ages() {
  for (const e of document.querySelectorAll("time[data-since]")) {
    const text = age(Number(e.dataset.since));
    if (e.textContent !== text) e.textContent = text;
  }
}

const named = (o) => (o.namespace ? `${o.namespace}/${o.name}` : o.name);
const level = (l, text) => element("span", { class: "level", "data-level": l || "OK" }, text || l || "OK");
const object = (o) => element("span", {}, element("span", { class: "kind" }, o.kind), " ", code(named(o)));
const code = (text) => (text ? element("span", { class: "name" }, text) : "");

// fewRows is how many rows a table has at most that does not scroll by itself.
const fewRows = 7;

// number returns a number with separators.
export const number = (n) => n.toLocaleString("en");

// table returns a table. Its roles are set, because on narrow screens its rows are blocks.
function table(label, columns, rows) {
  const head = element("tr", { role: "row" }, ...columns.map((c) => element("th", { scope: "col", role: "columnheader" }, c)));
  const body = rows.map((row) => element("tr", { role: "row" },
    ...row.map((cell, i) => element("td", { role: "cell", "data-label": columns[i] }, cell))));
  const whole = element("table", { role: "table", "aria-label": label },
    element("thead", { role: "rowgroup" }, head), element("tbody", { role: "rowgroup" }, ...body));
  if (rows.length <= fewRows) return whole;
  return element("div", { class: "long", role: "region", "aria-label": `${label}, ${rows.length} rows`, tabindex: "0" }, whole);
}

// list shows a list in a section: a table, or that there is nothing.
function list(id, l, none, columns, row) {
  const section = document.getElementById(id);
  section.querySelector(".count").textContent = l.all ? number(l.all) : "";
  section.dataset.empty = String(!l.all);
  const parts = [l.all ? table(section.querySelector("h2").textContent, columns, l.rows.map(row)) : element("p", { class: "none" }, none)];
  if (l.all > l.rows.length) parts.push(element("p", { class: "none" }, `${l.all - l.rows.length} more are not shown.`));
  section.querySelector(".body").replaceChildren(...parts);
}

function about(a) {
  document.getElementById("served").textContent = a.version === "unknown" ? `served by ${a.replica}` : `served by ${a.replica} ${a.version}`;
  const unread = document.getElementById("unread");
  unread.hidden = !a.unread;
  unread.replaceChildren(...(a.unread || []).map((text) => element("p", {}, `Not read: ${text}`)));
}

function counts(s) {
  const c = s.counts, f = s.fleet;
  const all = [
    ["Machines", number(c.machines), "#machines"], ["MachineDeployments", number(c.deployments), "#machines"],
    ["Replicas", f.lives, "#fleet-section"], ["Slots held", `${f.held} of ${f.slots.length}`, "#fleet-section"],
    ["Rolling out", c.rollingOut, "#rollouts"], ["Drains", s.drains.all, "#drains"],
    ["Errors", c.errors, "#trouble", c.errors ? "Error" : ""], ["Warnings", c.warnings, "#trouble", c.warnings ? "Warning" : ""],
  ];
  document.getElementById("counts").replaceChildren(...all.map(([name, value, href, l]) => element("div", { "data-level": l || undefined },
    element("dt", {}, name), element("dd", {}, element("a", { href }, String(value))))));
  const numbers = (name, rows) => table(`Machines by ${name}`, [name, "machines", "with trouble"],
    rows.map((r) => [r.name || "unknown", number(r.count), number(r.trouble)]));
  document.querySelector("#numbers .body").replaceChildren(numbers("phase", c.phases), numbers("zone", c.zones));
}

// hues are colors of replicas, which differ in lightness, too.
export const hues = 12;

function fleet(f) {
  document.getElementById("fleet").textContent = f.name;
  document.title = `Fleet ${f.name}`;
  const section = document.getElementById("fleet-section");
  section.querySelector(".count").textContent = `${f.lives} of ${f.all} live, ${f.held} of ${f.slots.length} slots held`;
  const parts = [];
  if (f.hold) parts.push(element("p", { class: "problem" }, `Deletions are held in all namespaces: ${f.hold}`));
  const levels = { Lives: "OK", Leads: "OK", Left: "Note", Leaving: "Note" };
  const words = { Lives: "lives", Leads: "lives, leads", Left: "has left", Leaving: "is leaving", Silent: "is silent", Unfit: "is unfit" };
  const state = (r) => level(levels[r.state] || "Error", words[r.state] || r.state);
  parts.push(table("Replicas", ["Replica", "State", "Slots", "Machines", "Why"], f.replicas.map((r, i) => [
    element("span", { class: "swatch", "data-hue": r.state === "Left" ? undefined : i % hues }, code(r.name)),
    state(r), number(r.slots), number(r.machines), r.why || ""])));
  if (f.all > f.replicas.length) parts.push(element("p", { class: "none" }, `${f.all - f.replicas.length} more are not shown.`));
  const cells = f.slots.map((slot) => {
    const holder = f.replicas[slot.h], assigned = f.replicas[slot.a];
    let text = `slot ${slot.n}: ${holder ? `held by ${holder.name}` : slot.s ? "no holder" : "held by a replica that is not shown"}`;
    if (slot.s === "Moving" && assigned) text += `, moves to ${assigned.name}`;
    else if (slot.s) text += `, ${slot.s}`;
    const cell = element("span", { class: "slot", "data-hue": slot.h < 0 ? undefined : slot.h % hues, "data-state": slot.s });
    cell.title = `${text}, ${slot.m || 0} machines`;
    return cell;
  });
  const label = `${f.slots.length} slots: ` + f.replicas.filter((r) => r.slots).map((r) => `${r.name} holds ${r.slots}`).join(", ");
  parts.push(element("div", { class: "slots", role: "img", "aria-label": label }, ...cells));
  const special = f.slots.filter((s) => s.s);
  if (special.length) {
    const name = (i) => (f.replicas[i] ? f.replicas[i].name : "none");
    parts.push(table("Slots that are not just held", ["Slot", "State", "Holder", "Assigned to"],
      special.slice(0, 50).map((s) => [String(s.n), s.s, code(name(s.h)), code(name(s.a))])));
  }
  section.querySelector(".body").replaceChildren(...parts);
}

function rollouts(l) {
  list("rollouts", l, "No rollout is under way.", ["MachineDeployment", "Progress", "State", "Stalled for"], (r) => {
    const done = Math.min(r.updated, r.available);
    const bar = element("progress", { max: Math.max(r.desired, 1), value: done, "aria-label": `Progress of ${r.name}` });
    return [code(named(r)),
      element("span", { class: "progress" }, bar, `${r.updated} of ${r.desired} new, ${r.available} available, ${r.total} in all`),
      element("span", {}, r.failed ? level("Error", "failed") : r.stalled ? level("Warning", "stalled") : "",
        r.paused ? level("Note", "paused") : "", r.stalled || r.text), since(r.since)];
  });
}

// deletions says what the list has, since another replica knows other ones.
function deletions(s) {
  const a = s.about, receipts = a.receipts === 1 ? "1 receipt" : `${number(a.receipts)} receipts`;
  list("deletions", s.deletions, "None of these.", ["Object", "Why", "State", "At", "By"], (d) => [
    object(d), [d.rule || "not recorded", d.evidence].filter(Boolean).join(": "),
    { started: "accepted", unknown: "sent, no answer", deleting: "is being deleted", gone: "gone" }[d.result] || d.result,
    since(d.at), code(d.by)]);
  document.querySelector("#deletions .body").prepend(element("p", { class: "none" },
    "Machines of all slots that are being deleted now; those that have ended since a page was opened at this replica, ", since(a.since),
    " ago; and the last deletions that ", code(a.replica), ` has requested itself: ${receipts}. `,
    "What other replicas deleted before that is not here: Events and the deletion log have it."));
}

// targetStates are the words for levels of target clusters; without a level nothing is wrong.
const targetStates = { Error: "not available", Warning: "does not answer" };

const shown = {
  about: (s) => about(s.about),
  fleet: (s) => fleet(s.fleet),
  rollouts: (s) => rollouts(s.rollouts),
  troubles: (s) => list("trouble", s.troubles, "Nothing.", ["Level", "Object", "Reason", "Message", "Since"],
    (t) => [level(t.level), object(t), t.reason, t.message || "", since(t.since)]),
  drains: (s) => list("drains", s.drains, "No Node is being drained.",
    ["Node", "Because of", "Since", "Forced", "Pods that are left, and what holds them"], (d) => [
      element("span", {}, d.blocked ? level("Warning", "blocked") : "", code(d.node),
        element("span", { class: "of" }, ` ${d.namespace}/${d.machine}`)),
      d.why, since(d.since), since(d.forced), d.report]),
  breakers: (s) => list("breakers", s.breakers, "None is open.", ["Object", "Why", "Since"],
    (t) => [object(t), t.message || "", since(t.since)]),
  targets: (s) => list("targets", s.targets, "There is no target cluster.", ["Of namespace", "Machines", "State", "Why"],
    (t) => [code(t.namespace || "all"), number(t.machines), level(t.level, targetStates[t.level]),
      t.why || t.server || (t.state ? "" : "No trouble is reported; this replica does not work with it.")]),
  orphans: (s) => list("orphans", s.orphans, "No resource is suspected.", ["MachineClass", "Suspects", "Approved", "Oldest"],
    (o) => [code(`${o.namespace}/${o.class}`), String(o.suspects), String(o.approved || 0), `${o.minutes} min`]),
  deletions: (s) => deletions(s),
};

// show shows the sections that have changed.
export function show(sections, changed) {
  for (const name of changed) if (shown[name]) shown[name](sections);
  if (changed.includes("about") && !changed.includes("deletions") && sections.deletions && !sections.about.loading) deletions(sections);
  if (changed.some((name) => ["counts", "fleet", "drains"].includes(name)) && sections.counts) counts(sections);
}

// create adds the links to sections.
export function create() {
  const links = [...document.querySelectorAll("main > section")].map((s) => {
    const title = s.querySelector("h2").firstChild.textContent.trim();
    return element("li", {}, element("a", { href: `#${s.id}` }, title));
  });
  document.getElementById("sections").replaceChildren(...links);
}
