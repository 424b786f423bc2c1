// Receives states as server-sent events, and shows them. All texts of objects are set as text.
import { create, ages, show } from "/page/tables.js";
import { Machines } from "/page/tiles.js";

const sections = {};
const machines = new Machines();
let source = null;
let hidden = 0;

function status(state, text) {
  const live = document.getElementById("live");
  live.dataset.state = state;
  if (live.textContent !== text) live.textContent = text;
}

// apply applies a message: the whole state, or a change.
function apply(message) {
  if (message.whole) machines.clear();
  machines.change(message.machines || []);
  const wasLoading = !sections.about || sections.about.loading;
  Object.assign(sections, message.sections);
  // While objects are read, lists that are empty say nothing.
  if (sections.about.loading) return show(sections, ["about"]);
  show(sections, wasLoading ? Object.keys(sections) : Object.keys(message.sections || {}));
  machines.pools = sections.pools ? sections.pools.rows : [];
  machines.slots = sections.fleet;
  machines.machines = sections.counts ? sections.counts.machines : 0;
  machines.draw();
}

function connect() {
  if (source) source.close();
  source = new EventSource("/page/events");
  source.addEventListener("state", (event) => {
    apply(JSON.parse(event.data));
    status(sections.about.loading ? "connecting" : "live", sections.about.loading ? "reading the objects of the fleet" : "live");
  });
  // The session has ended: the form of the login is there.
  source.addEventListener("end", () => location.reload());
  source.addEventListener("error", () => {
    status("lost", "connection lost; what is shown may be old");
    if (source.readyState === EventSource.CLOSED) setTimeout(again, 5000);
  });
}

// again connects again, or has the login shown if that is what is missing.
async function again() {
  try {
    const answer = await fetch("/page/", { cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) return location.reload();
  } catch {
    // The replica does not answer.
  }
  connect();
}

// A page that nobody sees costs nothing after a minute.
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      source.close();
      source = null;
    }, 60000);
  } else if (!source) {
    connect();
  }
});

setInterval(ages, 5000);
machines.start();
create();
connect();
