// Shows machines as tiles, in groups, each group on a canvas that is drawn while it is visible.
import { age, element, number } from "/page/tables.js";

// kinds are the looks of tiles. The colors are custom properties of the style; each has a mark of
// its own, so that color is not needed.
const kinds = [
  { name: "runs", of: (m) => m.phase === "Running" || m.phase === "Available" },
  { name: "begins", of: (m) => m.phase === "Pending" || m.phase === "Creating" },
  { name: "updates", of: (m) => m.phase.startsWith("InPlace") },
  { name: "ends", of: (m) => m.phase === "Terminating" },
  { name: "other", of: () => true },
];
const words = {
  runs: "runs", begins: "is being created", updates: "is updated in place", ends: "is being deleted", other: "in another phase",
  warning: "has a warning", error: "has failed",
};
const mostGroups = 400;

function look(m) {
  if (m.level >= 3) return "error";
  if (m.level === 2) return "warning";
  return kinds.find((k) => k.of(m)).name;
}

export class Machines {
  constructor() {
    this.all = new Map(); // pool → name → machine
    this.groups = new Map(); // of what is shown, by key
    this.pools = [];
    this.machines = 0; // how many there are, also without a tile
    this.by = "pool";
    this.find = "";
    this.only = false;
    this.chosen = null;
    this.colors = {};
  }

  start() {
    this.area = document.getElementById("groups");
    this.observer = new IntersectionObserver((entries) => {
      for (const e of entries) {
        const group = this.groups.get(e.target.dataset.key);
        if (group) {
          group.visible = e.isIntersecting;
          if (group.visible) this.paint(group);
        }
      }
    }, { rootMargin: "300px" });
    new ResizeObserver(() => this.draw()).observe(this.area);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle());
    this.restyle();
    for (const radio of document.querySelectorAll("#view input[name=by]")) {
      radio.addEventListener("change", () => {
        this.by = radio.value;
        this.draw();
      });
    }
    document.getElementById("view").addEventListener("submit", (e) => e.preventDefault());
    document.getElementById("find").addEventListener("input", (e) => {
      this.find = e.target.value.trim().toLowerCase();
      this.draw();
    });
    document.getElementById("only").addEventListener("change", (e) => {
      this.only = e.target.checked;
      this.draw();
    });
    this.legend();
  }

  // restyle reads the colors of the style.
  restyle() {
    const style = getComputedStyle(document.documentElement);
    for (const name of [...Object.keys(words), "mark", "choice"]) this.colors[name] = style.getPropertyValue(`--tile-${name}`).trim();
    for (const group of this.groups.values()) this.paint(group, true);
    this.legend();
  }

  legend() {
    document.getElementById("legend").replaceChildren(...Object.keys(words).map((name) => {
      const canvas = element("canvas", { width: 28, height: 28, "aria-hidden": "true" });
      const c = canvas.getContext("2d");
      c.scale(2, 2);
      this.tile(c, name, 0, 0, 14);
      return element("li", {}, canvas, words[name]);
    }));
  }

  clear() { this.all.clear(); }

  // change applies groups of tiles, each an array: name, phase, zone, level, since, slot, Node, note.
  change(groups) {
    for (const g of groups) {
      const key = `${g.namespace}/${g.pool}`;
      let pool = this.all.get(key);
      if (!pool) this.all.set(key, pool = new Map());
      for (const name of g.gone || []) pool.delete(name);
      for (const [name, phase, zone, level, since, slot, node, note] of g.tiles || []) {
        pool.set(name, {
          namespace: g.namespace, pool: g.pool, name, phase, zone, level, since, slot, node: node === "=" ? name : node, note: note || "",
        });
      }
      if (!pool.size) this.all.delete(key);
    }
  }

  shows(m) {
    if (this.only && m.level < 2) return false;
    if (!this.find) return true;
    return `${m.namespace}/${m.name} ${m.node} ${m.phase} ${m.zone} ${m.pool}`.toLowerCase().includes(this.find);
  }

  // draw groups the machines anew, and paints what is visible and differs.
  draw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.regroup();
    });
  }

  keyOf(m, pool) {
    switch (this.by) {
      case "phase": return m.phase;
      case "zone": return m.zone || "unknown";
    }
    return pool === `${m.namespace}/` ? `${m.namespace}: without a MachineDeployment` : pool;
  }

  regroup() {
    const found = new Map();
    let count = 0, all = 0;
    for (const [pool, machines] of this.all) {
      all += machines.size;
      for (const m of machines.values()) {
        if (!this.shows(m)) continue;
        count++;
        const key = this.keyOf(m, pool);
        const group = found.get(key);
        if (group) group.push(m); else found.set(key, [m]);
      }
    }
    const more = document.querySelector("#machines .count");
    const machines = Math.max(this.machines, all); // also those without a tile
    more.textContent = count === machines ? number(all) : `${number(count)} of ${number(machines)}`;
    const keys = [...found.keys()].map((key) => [key, found.get(key).reduce((worst, m) => Math.max(worst, m.level < 2 ? 0 : m.level), 0)]);
    keys.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const size = count > 4000 ? 7 : count > 800 ? 10 : 15;
    const wanted = new Map();
    for (const [key] of keys.slice(0, mostGroups)) {
      const group = this.groups.get(key) || this.newGroup(key);
      group.machines = found.get(key);
      group.size = size;
      wanted.set(key, group);
      this.title(group);
    }
    for (const [key, group] of this.groups) {
      if (wanted.has(key)) continue;
      this.observer.unobserve(group.section);
      group.section.remove();
    }
    this.groups = wanted;
    let after = null;
    for (const group of wanted.values()) {
      const place = after ? after.nextSibling : this.area.firstChild;
      if (place !== group.section) this.area.insertBefore(group.section, place);
      after = group.section;
      this.paint(group);
    }
    this.rest(keys.length, all, machines - all);
    this.describe();
  }

  rest(groups, all, without) {
    if (this.note) this.note.remove();
    let text = groups > mostGroups ? `${groups - mostGroups} more groups are not shown; find some.` : "";
    if (!groups) text = all ? "No machine matches." : "There are no machines.";
    if (without) text = `${text} ${number(without)} more machines have no tile, and are not found here; kubectl mcf tree has all.`.trim();
    this.note = element("p", { class: "none" }, text);
    if (text) this.area.append(this.note);
  }

  newGroup(key) {
    const title = element("h3", {}), canvas = element("canvas", { tabindex: "0", role: "application" });
    const section = element("div", { class: "group", "data-key": key }, title, canvas);
    const group = { key, title, canvas, section, machines: [], visible: false, painted: "" };
    canvas.addEventListener("mousemove", (e) => this.point(group, e));
    canvas.addEventListener("click", (e) => this.point(group, e));
    canvas.addEventListener("keydown", (e) => this.key(group, e));
    canvas.addEventListener("focus", () => {
      if (!group.machines.includes(this.chosen)) this.choose(group, 0);
    });
    this.observer.observe(section);
    return group;
  }

  // title sets the heading of a group, and what a screen reader says of its tiles.
  title(group) {
    const phases = new Map();
    let trouble = 0;
    for (const m of group.machines) {
      phases.set(m.phase, (phases.get(m.phase) || 0) + 1);
      if (m.level >= 2) trouble++;
    }
    const parts = [...phases].sort((a, b) => b[1] - a[1]).map(([phase, n]) => `${number(n)} ${phase}`).join(", ");
    const pool = this.by === "pool" && this.pools.find((p) => `${p.namespace}/${p.name}` === group.key);
    const desired = pool && pool.desired !== group.machines.length ? ` (${number(pool.desired)} desired)` : "";
    const reason = pool && pool.reason && pool.level !== "Note" ? `; ${pool.reason}` : "";
    const text = `${number(group.machines.length)}${desired}: ${parts}${reason}`;
    if (group.text === text) return;
    group.text = text;
    group.title.replaceChildren(element("span", { class: "name" }, group.key), element("span", { class: "of" }, ` ${text}`));
    group.section.dataset.trouble = String(trouble > 0);
    group.canvas.setAttribute("aria-label", `${group.key}, ${text}. Arrow keys move between machines.`);
  }

  // paint sizes the canvas of a group, and draws its tiles if it is visible, unless they are as they were.
  paint(group, force) {
    const width = Math.floor(this.area.clientWidth), step = group.size;
    if (!width) return;
    const row = Math.max(1, Math.floor(width / step)), rows = Math.ceil(group.machines.length / row);
    const style = group.canvas.style, columns = Math.min(row, group.machines.length);
    if (style.width !== `${columns * step}px`) style.width = `${columns * step}px`;
    if (style.height !== `${rows * step}px`) style.height = `${rows * step}px`;
    if (!group.visible) return;
    const looks = group.machines.map(look);
    const chosen = group.machines.indexOf(this.chosen);
    const picture = `${width} ${step} ${chosen} ${devicePixelRatio} ${looks.join()}`;
    group.row = row;
    if (!force && picture === group.painted) return;
    group.painted = picture;
    const ratio = devicePixelRatio || 1;
    group.canvas.width = columns * step * ratio;
    group.canvas.height = rows * step * ratio;
    const c = group.canvas.getContext("2d");
    c.scale(ratio, ratio);
    looks.forEach((name, i) => this.tile(c, name, (i % row) * step, Math.floor(i / row) * step, step));
    if (chosen >= 0) {
      c.strokeStyle = this.colors.choice;
      c.lineWidth = 2;
      c.strokeRect((chosen % row) * step, Math.floor(chosen / row) * step, step - 1, step - 1);
    }
  }

  // tile draws one tile with the mark of its look.
  tile(c, name, x, y, step) {
    const size = step - (step > 8 ? 2 : 1);
    c.fillStyle = this.colors[name] || "gray";
    c.fillRect(x, y, size, size);
    c.strokeStyle = c.fillStyle = this.colors.mark;
    c.lineWidth = step > 8 ? 1.5 : 1;
    c.beginPath();
    switch (name) {
      case "error":
        c.moveTo(x + 1, y + 1);
        c.lineTo(x + size - 1, y + size - 1);
        c.moveTo(x + size - 1, y + 1);
        c.lineTo(x + 1, y + size - 1);
        break;
      case "warning":
        c.moveTo(x + 1, y + size - 1);
        c.lineTo(x + size - 1, y + 1);
        break;
      case "begins":
        c.fillRect(x + size / 2 - 1, y + size / 2 - 1, 2, 2);
        break;
      case "ends":
        c.moveTo(x + 1, y + size / 2);
        c.lineTo(x + size - 1, y + size / 2);
        break;
      case "updates":
        c.moveTo(x + size / 2, y + 1);
        c.lineTo(x + size / 2, y + size - 1);
    }
    c.stroke();
  }

  point(group, e) {
    const x = Math.floor(e.offsetX / group.size), y = Math.floor(e.offsetY / group.size), i = y * group.row + x;
    if (x >= 0 && x < group.row && group.machines[i]) this.choose(group, i);
  }

  key(group, e) {
    const at = Math.max(0, group.machines.indexOf(this.chosen)), last = group.machines.length - 1;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + group.row, ArrowUp: at - group.row, Home: 0, End: last }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.choose(group, Math.min(Math.max(to, 0), last));
  }

  choose(group, i) {
    if (this.chosen === group.machines[i]) return;
    this.chosen = group.machines[i];
    for (const g of this.groups.values()) if (g.visible) this.paint(g);
    this.describe();
  }

  // describe shows the machine that was chosen, as it is now.
  describe() {
    const detail = document.getElementById("detail");
    const was = this.chosen;
    if (!was) {
      const hint = "Point at a tile, or move to one with the arrow keys.";
      if (!detail.textContent) detail.replaceChildren(element("span", { class: "none" }, hint));
      return;
    }
    const now = this.all.get(`${was.namespace}/${was.pool}`)?.get(was.name);
    if (now && now !== was) this.chosen = now;
    const m = now || was, fleet = this.slots;
    const slot = fleet && fleet.slots.find((s) => s.n === m.slot);
    const holder = slot && fleet.replicas[slot.h];
    const parts = [
      element("strong", { class: "name" }, `${m.namespace}/${m.name}`), now ? m.phase : "is gone",
      m.since ? element("time", { "data-since": m.since }, age(m.since)) : "",
      m.node && m.node !== m.name ? `Node ${m.node}` : "",
      `zone ${m.zone || "unknown"}`, m.slot >= 0 ? `slot ${m.slot}${holder ? ` of ${holder.name}` : ""}` : "no slot", m.note,
    ];
    const text = parts.map((p) => (typeof p === "string" ? p : p.textContent)).join("\n");
    if (this.described === text) return;
    this.described = text;
    detail.replaceChildren(...parts.filter(Boolean).map((p) => element("span", {}, p)));
  }
}
