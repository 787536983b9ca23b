// The place Cluster: brokers with what can be done to them, all partitions at a glance, and lanes of some.

import { html, signal, useEffect } from "./vendor.js";
import { ownBroker, state } from "./feed.js";
import { isCluster, verb } from "./commands.js";
import { Do, later } from "./controls.js";
import { asTable, lastRecords, Partition, windowWords, zoom } from "./lanes.js";
import { many, placeOf, shown } from "./text.js";

const LANES_MAX = 12; // partitions that are drawn at once
const PICKED_MS = 3000;
export const chosen = signal(""); // the broker that keys are about
export const showsInternal = signal(false);

export function isInternal(topic) {
  return topic.startsWith("__");
}

// Which partitions are drawn: those that the address names, or all if they are few, or the worst.
export function wanted(now, path) {
  const [topic, number] = path;
  const cells = topic ? { [topic]: now.cells[topic] ?? "" } : visible(now.cells);
  if (number !== undefined) return Number(number) < cells[topic].length ? [placeOf(topic, Number(number))] : [];
  if (sizeOf(cells) > LANES_MAX) return pick(cells, topic);
  return Object.keys(cells)
    .sort()
    .flatMap((each) => [...cells[each]].map((_, at) => placeOf(each, at)));
}

// Of many the worst, and for a while the same ones: nobody can follow others every moment.
let picked = { at: -Infinity, keys: [], of: "" };
function pick(cells, topic) {
  const at = performance.now();
  const of = `${topic} ${showsInternal.value}`;
  if (at - picked.at > PICKED_MS || picked.of !== of) {
    picked = { at, of, keys: worst(cells, LANES_MAX).map((each) => placeOf(each.topic, each.number)) };
  }
  return picked.keys;
}

const sizeOf = (cells) => Object.values(cells).reduce((sum, letters) => sum + letters.length, 0);

export function visible(cells) {
  return Object.fromEntries(Object.entries(cells).filter(([topic]) => showsInternal.value || !isInternal(topic)));
}

export const WORST = [..."nmuvpk"]; // the health of partitions, the worst first (docs/http.md)

export function worst(cells, most) {
  const found = [];
  for (const letter of WORST) {
    for (const [topic, letters] of Object.entries(cells)) {
      for (let at = letters.indexOf(letter); at >= 0; at = letters.indexOf(letter, at + 1)) {
        found.push({ topic, number: at, letter });
        if (found.length >= most) return found;
      }
    }
  }
  return found;
}

const Letters = later("letters", "Letters");
const Overview = later("cells", "Overview");
// What the feed is asked for: nothing by name as long as all is shown anyway.
export function query(now, path) {
  if (!now) return "sums=1";
  const isAll = !path.length && !showsInternal.value && sizeOf(visible(now.cells)) <= LANES_MAX;
  const keys = isAll ? [] : wanted(now, path);
  return `sums=1&contents=1${keys.length ? `&parts=${keys.map(encodeURIComponent).join(",")}` : ""}`;
}

export function Cluster({ path }) {
  const now = state.value;
  const cells = visible(now.cells);
  const keys = wanted(now, path);
  const all = sizeOf(cells);
  const loose = Object.entries(now.gates).filter(([, row]) => row[5].length === 0);
  const [topic, number] = path;
  const place = topic === undefined ? null : { topic, number: Number(number) };
  const size = topic === undefined ? all : number === undefined ? (now.cells[topic]?.length ?? 0) : keys.length;
  const some = size > keys.length ? `${keys.length} of ${many(size, "partition")}, the worst first` : place ? "" : "Replicas";
  useEffect(() => {
    const ids = Object.keys(now.brokers); // not the one that shows this page, if there is another
    if (!chosen.value) chosen.value = ids.find((id) => id !== ownBroker) ?? ids[0] ?? "";
  });
  return html`
    <${Brokers} now=${now} />
    ${isCluster() ? html`<${Steps} now=${now} loose=${loose} />` : null}
    ${all > LANES_MAX ? html`<${Overview} cells=${cells} chosen=${place} asTable=${asTable.value} />` : null}
    <section class="partitions" aria-label="Replicas">
      <header class="tools">
        <h2>
          ${place ? html`<a href="#/cluster" class="back">all</a> <bdi>${shown(path.join("-"), 60)}</bdi> ${some}` : some}
        </h2>
        <span class="window"
          ><button type="button" onClick=${() => zoom(-1)} aria-label="Show fewer offsets">−</button
          ><span>${windowWords(lastRecords.value)}</span
          ><button type="button" onClick=${() => zoom(1)} aria-label="Show more offsets">+</button></span
        >
        <button
          type="button"
          aria-pressed=${String(asTable.value)}
          onClick=${() => (asTable.value = !asTable.value)}
          title="t"
        >
          table
        </button>
        <label class="check"
          ><input
            type="checkbox"
            checked=${showsInternal.value}
            onChange=${(event) => (showsInternal.value = event.target.checked)}
          />internal topics</label
        >
      </header>
      ${keys.filter((key) => now.rows[key]).map((key) => html`<${Partition} key=${key} id=${key} />`)}
      ${keys.length ? null : html`<${Nothing} now=${now} topic=${topic} />`}
    </section>
    ${keys.length && !asTable.value ? html`<${Legend} />` : null}
  `;
}

function Nothing({ now, topic }) {
  if (topic !== undefined)
    return html`<p class="empty-place">
      There is no <bdi>${shown(topic, 60)}</bdi> here. <a href="#/cluster">All partitions</a>
    </p>`;
  const address = String(now.cluster.bootstrap);
  return html`<div class="empty-place">
    <p>There is no topic yet. Make one:</p>
    <code>minibroker topics create orders -b ${address.split(",")[0]}</code>
    <p>or write a record with any client of Kafka: topics are made when they are written to.</p>
  </div>`;
}

function Brokers({ now }) {
  const brokers = Object.entries(now.brokers);
  const rows = Object.values(now.rows).filter((row) => !isInternal(row[0]));
  const all = Object.entries(now.cells).filter(([topic]) => !isInternal(topic));
  const isWhole = rows.length === sizeOf(Object.fromEntries(all)); // else nobody knows here who leads the others
  const leads = {};
  for (const row of rows) leads[row[2]] = (leads[row[2]] ?? 0) + 1;
  return html`<section class="brokers" aria-label="Brokers">
    ${brokers.map(
      ([id, row]) =>
        html`<${Broker} key=${id} id=${Number(id)} row=${row} now=${now} leads=${isWhole ? (leads[id] ?? 0) : null} />`,
    )}
    ${isCluster() ? html`<${Controller} how=${now.cluster.controller} />` : null}
  </section>`;
}

export function stateOf(row) {
  return row[1] === "running" && row[2] ? "fenced" : row[1];
}

export function isCutOff(now, id) {
  return (
    now.brokers[id][4] || Object.entries(now.links).some(([key, row]) => row[0] && key.split("->").includes(String(id)))
  );
}

// What keys and buttons do to a broker, by its state.
export function commandsOf(now, id) {
  const [, how] = now.brokers[id];
  const found = {};
  if (how === "running") {
    found.kill = verb("kill", { broker: id });
    found.pause = verb("pause", { broker: id });
    found.stop = verb("stop", { broker: id });
  } else if (how === "paused") {
    found.resume = verb("resume", { broker: id });
    found.kill = verb("kill", { broker: id });
  } else if (how !== "stopping" && how !== "starting") {
    found.start = verb("start", { broker: id });
  }
  if (isCutOff(now, id)) found.heal = verb("heal", { a: id });
  else if (how === "running" || how === "paused") found["cut off"] = verb("isolate", { broker: id });
  return found;
}

const OWN = "It serves this page: when it is gone you go on at another one";

function Broker({ id, row, now, leads }) {
  const deed = ([label, command], at) => // by their place: whoever has used one is at the next one then
    html`<${Do} key=${at} command=${command} kind="small" label=${label} words=${`${label} broker ${id}`} danger=${label === "kill"} />`;
  const [address, , , rack] = row;
  const how = stateOf(row);
  const isMine = chosen.value === String(id);
  return html`<article
    class=${`broker ${how} ${isMine && isCluster() ? "mine" : ""}`}
    aria-label=${`Broker ${id}, ${how}`}
    onClick=${() => (chosen.value = String(id))}
  >
    <h3>
      <span class="dot" aria-hidden="true"></span>b${id}
      <small class="state">${how}</small
      >${String(id) === ownBroker ? html`<small class="serves" title=${OWN}>this page</small>` : null}
    </h3>
    <p class="address">
      <bdi>${shown(address || "no address", 60)}</bdi>${rack ? html` in <bdi>${shown(rack, 30)}</bdi>` : null}
    </p>
    ${leads === null ? null : html`<p class="address">leads ${many(leads, "partition")}</p>`}
    ${isCluster() ? html`<div class="deeds">${Object.entries(commandsOf(now, id)).map(deed)}</div>` : null}
  </article>`;
}

function Controller({ how }) {
  const isOn = how === "running";
  return html`<article class=${`broker controller ${how}`} aria-label=${`Controller, ${how}`}>
    <h3><span class="dot" aria-hidden="true"></span>controller <small class="state">${how}</small></h3>
    <p class="address">decides who leads</p>
    <div class="deeds">
      ${
        isOn
          ? html`<${Do}
              command=${verb("kill", { broker: "controller" })}
              kind="small"
              label="kill"
              words="kill the controller"
              danger
            />`
          : html`<${Do}
              command=${verb("start", { broker: "controller" })}
              kind="small"
              label="start"
              words="start the controller"
            />`
      }
    </div>
  </article>`;
}

function Steps({ now, loose }) {
  const gates = Object.keys(now.gates).length;
  const [isFrozen, speed] = now.cluster.clock;
  return html`<section class="steps" aria-label="Steps and the clock">
    <div class="group">
      <span class="what">replication</span>
      <${Do}
        command=${verb("hold")}
        label="hold"
        words="Let fetches, answers, ISR changes and elections wait for you"
      />
      <${Do}
        command=${verb("step")}
        label="step"
        words="Let the first that waits through"
        disabled=${gates ? "" : "nothing waits at a gate"}
      />
      <${Do} command=${verb("release")} label="release" words="Let nothing wait any more" />
      <span class="hint">${gates ? `${many(gates, "message")} ${gates === 1 ? "waits" : "wait"}` : ""}</span>
    </div>
    <div class="group">
      <span class="what">clock</span>
      ${
        isFrozen
          ? html`<${Do} command=${verb("thaw")} label="go on" words="Let the clock go on" />`
          : html`<${Do} command=${verb("freeze")} label="freeze" words="Let the clock stand still" />`
      }
      ${["1s", "1m", "1h", "7d"].map(
        (by) =>
          html`<${Do} key=${by} command=${verb("advance", { duration: by })} label=${`+${by}`} words=${`Move the clock on by ${by}`} />`,
      )}
      <span class="hint">${isFrozen ? "stands still" : speed !== 1 ? `runs ${speed} times as fast` : ""}</span>
    </div>
    ${loose.length ? html`<${Letters} letters=${loose.sort((a, b) => a[1][1] - b[1][1])} />` : null}
  </section>`;
}

function Legend() {
  const sign = (width, drawn, words) =>
    html`<li><svg aria-hidden="true" width=${width} height="14">${drawn}</svg>${words}</li>`;
  const bar = html`<rect class="e0" x="1" y="2" width="24" height="10" />`;
  const loose = html`${bar}<rect class="hatch" x="1" y="2" width="24" height="10" />`;
  const hw = html`<g class="hw"><line x1="7" x2="7" y1="1" y2="14" /><path d="M2.5 0h9l-4.5 6z" /></g>`;
  return html`<ul class="signs" aria-label="Signs">
    ${sign(26, bar, "committed: all in sync have it")} ${sign(26, loose, "written, not committed")}
    ${sign(14, hw, "high watermark")}
    ${sign(14, html`<line class="lso" x1="7" x2="7" y1="1" y2="14" />`, "last stable offset, if a transaction is open")}
    ${sign(14, html`<g class="follower"><path d="M3 11h8l-4 -6z" /></g>`, "where a follower asked last")}
    ${sign(14, html`<g class="reader"><circle cx="7" cy="7" r="3.2" /></g>`, "committed by a group")}
    <li>C and A: commit and abort markers</li>
    <li>colours are leader epochs</li>
  </ul>`;
}
