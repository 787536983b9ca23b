// The shell: head, places by their addresses, what happened, keys. Where everything begins.

import { html, render, signal, useEffect } from "./vendor.js";
import { link, look, mayChange, ownBroker, rate, state, whyNot } from "./feed.js";
import { isCluster, run, verb } from "./commands.js";
import { copy, fetchRest, later, rest, TwinBar } from "./controls.js";
import { Said, pause, setRoutine, withRoutine } from "./said.js";
import { Cluster, chosen, commandsOf, query as clusterQuery, stateOf } from "./cluster.js";
import { asTable, zoom } from "./lanes.js";
import { bytes, count, shown, time } from "./text.js";

// Places: all but the first come when somebody goes there.
const PLACES = [
  { name: "cluster", title: "Cluster", View: Cluster, query: clusterQuery },
  { name: "topics", title: "Topics" },
  { name: "groups", title: "Groups" },
  { name: "transactions", title: "Transactions" },
  { name: "faults", title: "Faults" },
  { name: "lessons", title: "Lessons" },
  { name: "topic", title: "Topics" },
  { name: "log", title: "Topics" },
];
const LISTED = PLACES.slice(0, 6);
const Faulty = later("faults", "Faulty");
const Keys = later("keys", "Keys");
const route = signal([]);
const showsKeys = signal(false);
const theme = signal(localStorage.getItem("theme") ?? "");

function readAddress() {
  const words = location.hash.replace(/^#|\?.*/gs, "").split("/").filter(Boolean);
  try {
    route.value = words.map(decodeURIComponent);
  } catch {
    route.value = [];
  }
}

function placeOfAddress() {
  return PLACES.find((each) => each.name === route.value[0]) ?? PLACES[0];
}

function setTheme(name) {
  theme.value = name;
  if (name) localStorage.setItem("theme", name);
  else localStorage.removeItem("theme");
  document.documentElement.style.colorScheme = name || "light dark";
}

function App() {
  const now = state.value;
  const place = placeOfAddress();
  const path = route.value.slice(1);
  const part = place.View ? place : rest.value?.[place.name];
  const asked = part?.query?.(now, path) ?? "sums=1";
  useEffect(() => {
    if (!part) fetchRest();
  }, [place.name]);
  useEffect(() => look(asked), [asked]);
  useEffect(() => {
    document.title = `${place.title} – minibroker`;
  }, [place.title]);
  return html`
    <a
      class="skip"
      href="#main"
      onClick=${(event) => {
        event.preventDefault();
        document.getElementById("main").focus();
      }}
      >To what there is to see</a
    >
    <${Patterns} />
    <${Head} now=${now} />
    <${Trouble} now=${now} />
    ${now && isFaulty(now) ? html`<${Faulty} now=${now} />` : null}
    <nav class="places" aria-label="Places">
      ${LISTED.map(
        (each, index) =>
          html`<a key=${each.name} href=${`#/${each.name}`} aria-current=${each.title === place.title ? "page" : undefined}>
            <kbd>${index + 1}</kbd>${each.title}
          </a>`,
      )}
    </nav>
    <main id="main" tabindex="-1" aria-label=${place.title} class=${link.value.how === "live" ? "" : "stale"}>
      ${now && part ? html`<${part.View} path=${path} />` : html`<p class="wait">Looking for the brokers …</p>`}
    </main>
    <${Said} />
    <${TwinBar} />
    ${showsKeys.value ? html`<${Keys} onClose=${() => (showsKeys.value = false)} />` : null}
  `;
}

// What lanes are hatched with.
function Patterns() {
  return html`<svg width="0" height="0" aria-hidden="true" class="spoken">
    <defs>
      <pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="hatch-ground" width="7" height="7" />
        <line class="hatch-line" x1="0" x2="0" y1="0" y2="7" />
      </pattern>
      <pattern id="open" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
        <line class="open-line" x1="0" x2="0" y1="0" y2="6" />
      </pattern>
    </defs>
  </svg>`;
}

const HOW = { connecting: "connecting", live: "live", lost: "reconnecting", full: "waiting for a place" };

const isFaulty = (now) => [now.links, now.disks, now.rules].some((table) => Object.keys(table).length);

function Head({ now }) {
  const brokers = Object.entries(now?.brokers ?? {});
  const per = rate.value;
  return html`<header class="head">
    <h1><a href="#/cluster">minibroker</a></h1>
    ${
      now
        ? html`<button
            type="button"
            class="bootstrap"
            title="Where clients begin; a click copies it"
            onClick=${() => copy(now.cluster.bootstrap)}
          >
            <span class="spoken">Bootstrap servers: </span><code>${shown(now.cluster.bootstrap, 120)}</code>
          </button>`
        : null
    }
    ${now ? html`<${Clock} at=${now.t} isFrozen=${now.cluster.clock[0]} />` : null}
    <ul class="chips" aria-label="Brokers">
      ${brokers.map(([id, row]) => html`<${Chip} key=${id} id=${id} how=${stateOf(row)} />`)}
    </ul>
    ${
      per
        ? html`<span class="rate" title="What is written, and what is answered, in a second"
            ><b>${count(per.records)}</b> records/s <span class="more-rate"><b>${bytes(per.sent)}</b>/s out</span></span
          >`
        : null
    }
    <span class=${`link ${link.value.how}`} role="status"
      ><span class="dot" aria-hidden="true"></span>${HOW[link.value.how]}</span
    >
    ${mayChange.value ? null : html`<span class="read-only" title=${whyNot.value}>read only</span>`}
    <button type="button" onClick=${nextTheme} title="d" aria-label=${`Theme: ${theme.value || "as the system"}`}>
      ${{ "": "◐", light: "☀", dark: "☾" }[theme.value]}
    </button>
    <button type="button" onClick=${() => (showsKeys.value = true)} aria-label="Keys" title="?">?</button>
  </header>`;
}

function Clock({ at, isFrozen }) {
  return html`<span class=${isFrozen ? "clock frozen" : "clock"} title="The clock of the brokers">
    ${time(at, isFrozen)}${isFrozen ? " frozen" : ""}
  </span>`;
}

function Chip({ id, how }) {
  return html`<li class=${how} title=${`broker ${id}: ${how}`}>
    <span class="dot" aria-hidden="true"></span>b${id}
    <span class=${how === "running" ? "spoken" : ""}>${how}</span>
  </li>`;
}

const nextTheme = () => setTheme({ "": "dark", dark: "light", light: "" }[theme.value]);

// The broker that shows this page may be the one that was killed.
function Trouble({ now }) {
  const { how, why } = link.value;
  if (how === "live" || how === "connecting") return null;
  const others = Object.entries(now?.brokers ?? {}).filter(
    ([id, row]) => id !== ownBroker && row[1] === "running" && row[0],
  );
  const words = `Broker ${ownBroker}, which shows this page, does not answer. What you see is what it said last.`;
  return html`<div class="trouble" role="alert">
    <p>${why ? shown(why, 200) : words}</p>
    ${
      how === "lost" && !why
        ? others.map(([id, [listed]]) => html`<a class="go" href=${addressOf(listed)}>go on at broker ${id}</a>`)
        : null
    }
  </div>`;
}

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];
function addressOf(listed) {
  const [, host, port] = /^(.*):(\d+)$/.exec(String(listed).split(",")[0]) ?? [];
  const isHere = LOOPBACK.includes(host) && LOOPBACK.includes(location.hostname);
  return `http://${isHere ? location.hostname : host}:${port}/${location.hash}`;
}

function choose(by) {
  const ids = Object.keys(state.value?.brokers ?? {});
  const at = Math.max(0, ids.indexOf(chosen.value));
  chosen.value = ids[(at + by + ids.length) % ids.length] ?? "";
}

function toBroker(...labels) {
  if (!isCluster() || !mayChange.value || !(chosen.value in state.value.brokers)) return;
  const commands = commandsOf(state.value, Number(chosen.value));
  const label = labels.find((each) => commands[each]);
  if (label) run(commands[label]);
}

function toAll(name, given) {
  if (isCluster() && mayChange.value) run(verb(name, given));
}

const ON_KEY = {
  "[": () => choose(-1),
  "]": () => choose(1),
  k: () => toBroker("kill", "start"),
  p: () => toBroker("pause", "resume"),
  h: () => toAll("hold"),
  s: () => toAll("step"),
  r: () => toAll("release"),
  f: () => toAll(state.value?.cluster.clock[0] ? "thaw" : "freeze"),
  a: () => toAll("advance", { duration: "1s" }),
  t: () => (asTable.value = !asTable.value),
  "+": () => zoom(1),
  "-": () => zoom(-1),
  " ": () => pause(),
  e: () => setRoutine(!withRoutine.value),
  d: nextTheme,
  n: () => document.querySelector(".do.on")?.click(),
  b: () => document.querySelector(".do.undo")?.click(),
  "/": () => document.querySelector("input.filter")?.focus(),
  "?": () => (showsKeys.value = !showsKeys.value),
};

function onKey(event) {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input:not([type=checkbox]), textarea, select, dialog")
  )
    return;
  if (event.key === " " && event.target.closest("button, a, input, summary")) return;
  const place = LISTED[Number(event.key) - 1];
  const act = place ? () => (location.hash = `#/${place.name}`) : ON_KEY[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

const app = document.getElementById("app");
app.replaceChildren();
setTheme(theme.value);
readAddress();
addEventListener("hashchange", readAddress);
addEventListener("keydown", onKey);
render(html`<${App} />`, app);
