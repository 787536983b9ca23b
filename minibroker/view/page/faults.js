// The place Faults: cables between brokers, disks, and what clients are to meet.

import { html, signal } from "./vendor.js";
import { mayChange, ownBroker, state } from "./feed.js";
import { isCluster, literal, quoted, run, verb } from "./commands.js";
import { Do } from "./controls.js";
import { bytes, many, part, shown } from "./text.js";

export const query = () => "sums=1&topics=";

const tool = signal("cut");
const amounts = signal({ delay: 50, throttle: 2000, lose: 20, slow: 20 });
const isOneWay = signal(false);

const TOOLS = {
  cut: { words: "cut", unit: "" },
  delay: { words: "delay by", unit: "ms", min: 1 },
  throttle: { words: "throttle to", unit: "bytes/s", min: 1 },
  lose: { words: "lose", unit: "% of messages", min: 1, max: 100 },
};

export function View() {
  const now = state.value;
  return html`
    ${isCluster() ? html`<${Links} now=${now} />` : null} ${isCluster() ? html`<${Disks} now=${now} />` : null}
    <${Rules} now=${now} />
  `;
}

function setAmount(name, event) {
  const number = Number(event.target.value);
  if (number > 0) amounts.value = { ...amounts.value, [name]: number };
}

function Amount({ name, words, unit, max }) {
  return html`<input
    type="number"
    class="amount"
    min="1"
    max=${max}
    value=${amounts.value[name]}
    aria-label=${`${words}, ${unit}`}
    onInput=${(event) => setAmount(name, event)}
  />`;
}

const none = html`<span class="dim">·</span>`;

function Links({ now }) {
  const ends = [...Object.keys(now.brokers), "controller"];
  return html`<section class="panel" aria-label="Cables">
    <header class="tools">
      <h2>Cables</h2>
      <span class="toolbox" role="radiogroup" aria-label="What a click does"
        >${Object.entries(TOOLS).map(
          ([name, each]) =>
            html`<label key=${name} class="check"
              ><input
                type="radio"
                name="tool"
                aria-label=${each.words}
                checked=${tool.value === name}
                onChange=${() => (tool.value = name)}
              />${each.words}
              ${each.unit ? html`<${Amount} name=${name} words=${each.words} unit=${each.unit} max=${each.max} />` : null}
              ${each.unit}</label
            >`,
        )}</span
      >
      <label class="check"
        ><input
          type="checkbox"
          checked=${isOneWay.value}
          onChange=${(event) => (isOneWay.value = event.target.checked)}
        />one way only</label
      >
      <${Do}
        command=${verb("heal")}
        label="heal all cables"
        words="Make every cable as it was at first"
        disabled=${Object.keys(now.links).length ? "" : "all are as usual"}
      />
    </header>
    <div class="scroll">
      <table class="matrix">
        <thead>
          <tr>
            <th scope="col">from ↓ to →</th>
            ${[...ends, "clients"].map((end) => html`<th scope="col">${name(end)}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${ends.map(
            (from) =>
              html`<tr key=${from}>
                <th scope="row">${name(from)}</th>
                ${ends.map((to) => html`<td key=${to}>${from === to ? none : html`<${Cable} now=${now} from=${from} to=${to} />`}</td>`)}
                <td>
                  ${from === "controller" ? none : html`<${ClientCable} now=${now} broker=${from} />`}
                </td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <p class="more">
      A click does what is chosen above, ${isOneWay.value ? "in this direction alone" : "in both directions"}; a click
      on what is not as usual undoes it.
    </p>
  </section>`;
}

function Cable({ now, from, to }) {
  const { delay, throttle, lose } = amounts.value;
  const row = now.links[`${from}->${to}`];
  const both = { a: idOf(from), b: idOf(to), ...(isOneWay.value ? { one_way: true } : {}) };
  const command = row
    ? undoing(row, both)
    : {
        cut: () => verb("cut", both),
        delay: () => verb("delay", { ...both, ms: delay }),
        throttle: () => verb("throttle", { ...both, bytes_per_s: throttle }),
        lose: () => verb("lose", { ...both, share: lose / 100 }),
      }[tool.value]();
  const is = row ? words(row) : "ok";
  return html`<${Do}
    kind=${`cell-button ${row ? "on" : ""}`}
    command=${command}
    label=${is}
    words=${`${name(from)} to ${name(to)}: ${is}; ${row ? "undo" : TOOLS[tool.value].words}`}
  />`;
}

function ClientCable({ now, broker }) {
  const isCut = now.brokers[broker][4];
  const both = { a: idOf(broker), b: "clients" };
  return html`<${Do}
    kind=${`cell-button ${isCut ? "on" : ""}`}
    command=${verb(isCut ? "heal" : "cut", both)}
    label=${isCut ? "CUT" : "ok"}
    words=${`${name(broker)} to clients: ${isCut ? "cut; undo" : "ok; cut"}`}
    disabled=${broker === ownBroker && !isCut ? "this page is one of its clients: use the page of another broker" : ""}
  />`;
}

const name = (end) => (end === "controller" || end === "clients" ? end : `b${end}`);
const idOf = (end) => (/^\d+$/.test(end) ? Number(end) : end);

function words([isCut, delay, jitter, rate, lost]) {
  return [
    isCut ? "CUT" : "",
    delay || jitter ? `${delay}${jitter ? `–${delay + jitter}` : ""} ms` : "",
    rate ? `${bytes(rate)}/s` : "",
    lost ? `loses ${Math.round(lost * 100)} %` : "",
  ]
    .filter(Boolean)
    .join(", ");
}

function undoing([isCut, delay, jitter, rate], both) {
  if (isCut) return verb("heal", both);
  if (delay || jitter) return verb("delay", { ...both, ms: 0 });
  return rate ? verb("throttle", { ...both, bytes_per_s: 0 }) : verb("lose", { ...both, share: 0 });
}

function diskWords(trouble) {
  if (!trouble) return "ok";
  return trouble[0] === "full" ? "full: the broker ends at its next write" : `slow: ${trouble[1]} ms for each write`;
}

function Disks({ now }) {
  return html`<section class="panel" aria-label="Disks">
    <header class="tools">
      <h2>Disks</h2>
      <label class="check"
        >a slow one takes
        <input
          type="number"
          class="amount"
          min="1"
          value=${amounts.value.slow}
          aria-label="Milliseconds for each write"
          onInput=${(event) => setAmount("slow", event)}
        />
        ms for each write</label
      >
    </header>
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">broker</th>
            <th scope="col">disk</th>
            <th scope="col"></th>
          </tr>
        </thead>
        <tbody>
          ${Object.keys(now.brokers).map((broker) => {
            const trouble = now.disks[broker];
            const id = idOf(broker);
            return html`<tr key=${broker}>
              <th scope="row">b${broker}</th>
              <td class=${trouble ? "warn" : ""}>
                ${diskWords(trouble)}
              </td>
              <td>
                ${
                  trouble
                    ? html`<${Do}
                        kind="small"
                        command=${verb("heal-disk", { broker: id })}
                        label="heal"
                        words=${`heal the disk of broker ${broker}`}
                      />`
                    : html`<span class="deeds tight"
                        ><${Do}
                          kind="small"
                          danger
                          command=${verb("fill-disk", { broker: id })}
                          label="fill"
                          words=${`fill the disk of broker ${broker}`} />
                        <${Do}
                          kind="small"
                          command=${verb("slow-disk", { broker: id, ms: amounts.value.slow })}
                          label="slow"
                          words=${`slow down the disk of broker ${broker}`}
                      /></span>`
                }
              </td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>
  </section>`;
}

// What clients meet: rules and toxics of one broker each (docs/faults.md). HTTP sets those of the broker that is asked.

const faultsOf = (broker) => (isCluster() ? `cluster.faults(${broker})` : "broker.faults");

export function ruleCommand(broker, given) {
  const entries = Object.entries(given);
  const options = entries.map(([key, value]) => `--${key.replaceAll("_", "-")} ${quoted(value)}`);
  return {
    method: "POST",
    path: "faults",
    body: given,
    python: `${faultsOf(broker)}.add(${entries.map(([key, value]) => `${key}=${literal(value)}`).join(", ")})`,
    shell: `minibroker faults add ${options.join(" ")}`,
  };
}

export function toxicCommand(broker, type, attributes) {
  const entries = Object.entries(attributes);
  const named = entries.map(([key, value]) => `${key}=${literal(value)}`);
  return {
    method: "POST",
    path: "toxics",
    body: { type, attributes },
    python: `${faultsOf(broker)}.toxic(${[literal(type), ...named].join(", ")})`,
    shell: `minibroker faults add --toxic ${type} ${entries.map(([key, value]) => `--set ${key}=${value}`).join(" ")}`,
  };
}

export function removeCommand(id) {
  const path = /^\d+$/.test(id) ? "faults" : "toxics";
  return { method: "DELETE", path: `${path}/${part(id)}`, shell: `minibroker faults remove ${quoted(id)}` };
}

// APIs that a rule is often for; any other can be typed.
const OFTEN = [
  ...["Produce", "Fetch", "Metadata", "ListOffsets", "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"],
  ...["OffsetCommit", "OffsetFetch", "ConsumerGroupHeartbeat", "InitProducerId", "EndTxn"],
];
const ERRORS = [
  "NOT_LEADER_OR_FOLLOWER",
  "REQUEST_TIMED_OUT",
  "COORDINATOR_LOAD_IN_PROGRESS",
  "UNKNOWN_TOPIC_OR_PARTITION",
  "CORRUPT_MESSAGE",
  "NOT_ENOUGH_REPLICAS",
];
const wish = signal({ api: "Produce", topic: "", does: "error", error: ERRORS[0], delay_ms: 500, times: 2 });
const set = (more) => (wish.value = { ...wish.value, ...more });

function wished() {
  const { api, topic, does, error, delay_ms, times } = wish.value;
  const given = { ...(api ? { api } : {}), ...(topic ? { topic } : {}), ...(times ? { times } : {}) };
  if (does === "error") given.error = error;
  else if (does === "delay_ms") given.delay_ms = delay_ms;
  else given.close = "before";
  return given;
}

function Rules({ now }) {
  const rows = Object.entries(now.rules);
  const own = wish.value;
  return html`<section class="panel" aria-label="What clients meet">
    <header class="tools">
      <h2>
        What clients
        meet${isCluster() ? html` <small class="dim">at broker ${ownBroker}, which shows this page</small>` : null}
      </h2>
    </header>
    <div class="wishes">
      <label
        >a request of
        <input
          list="apis"
          class="text"
          value=${own.api}
          placeholder="any API"
          aria-label="API"
          onInput=${(event) => set({ api: event.target.value.trim() })}
      /></label>
      <datalist id="apis">
        ${OFTEN.map((each) => html`<option value=${each} />`)}
      </datalist>
      <label
        >for topic
        <input
          class="text"
          value=${own.topic}
          placeholder="any"
          aria-label="Topic"
          onInput=${(event) => set({ topic: event.target.value.trim() })}
      /></label>
      <select
        aria-label="What happens to it"
        value=${own.does}
        onChange=${(event) => set({ does: event.target.value })}
      >
        <option value="error">is answered</option>
        <option value="delay_ms">is answered late</option>
        <option value="close">finds the connection closed</option>
      </select>
      ${
        own.does === "error"
          ? html`<select
              aria-label="Error"
              value=${own.error}
              onChange=${(event) => set({ error: event.target.value })}
            >
              ${ERRORS.map((each) => html`<option>${each}</option>`)}
            </select>`
          : null
      }
      ${
        own.does === "delay_ms"
          ? html`<label
              >by
              <input
                type="number"
                class="amount"
                min="1"
                value=${own.delay_ms}
                aria-label="Milliseconds"
                onInput=${(event) => set({ delay_ms: Number(event.target.value) || 1 })}
              />
              ms</label
            >`
          : null
      }
      <label
        ><input
          type="number"
          class="amount"
          min="0"
          value=${own.times}
          aria-label="How often, 0: always"
          onInput=${(event) => set({ times: Number(event.target.value) || 0 })}
        />
        times</label
      >
      <${Do} command=${ruleCommand(ownBroker, wished())} label="set this rule" />
      <span class="what">or</span>
      <${Do}
        command=${toxicCommand(ownBroker, "latency", { latency: 200, jitter: 50 })}
        label="all 200 ms late"
        words="Let everything that is answered come 200 to 250 ms late"
      />
      <${Do}
        command=${toxicCommand(ownBroker, "bandwidth", { rate: 10 })}
        label="10 KB/s"
        words="Let connections have 10 KB a second"
      />
    </div>
    ${
      rows.length
        ? html`<div class="scroll">
            <table>
              <thead>
                <tr>
                  <th scope="col">broker</th>
                  <th scope="col">what</th>
                  <th scope="col" class="number">matched</th>
                  <th scope="col" class="number">struck</th>
                  <th scope="col"></th>
                </tr>
              </thead>
              <tbody>
                ${rows.map(([key, rule]) => html`<${Rule} key=${key} id=${key} rule=${rule} />`)}
              </tbody>
            </table>
          </div>`
        : html`<p class="more">Clients meet nothing but the broker.</p>`
    }
  </section>`;
}

function Rule({ id, rule }) {
  const at = id.indexOf("/");
  const [broker, own] = [id.slice(0, at), id.slice(at + 1)];
  const isMine = broker === ownBroker;
  const what = rule.type
    ? `toxic ${rule.type}, ${rule.stream}: ${Object.entries(rule.attributes)
        .map(([key, value]) => `${key} ${value}`)
        .join(", ")}${rule.toxicity < 1 ? `, of ${Math.round(rule.toxicity * 100)} % of connections` : ""}`
    : Object.entries(rule)
        .filter(([key]) => !["id", "matches", "strikes"].includes(key))
        .map(([key, value]) => `${key.replaceAll("_", " ")} ${value}`)
        .join(", ");
  return html`<tr>
    <th scope="row">b${broker}</th>
    <td><bdi>${shown(what, 200)}</bdi></td>
    <td class="number">${rule.matches ?? ""}</td>
    <td class="number">${rule.strikes ?? ""}</td>
    <td>
      ${
        isMine
          ? html`<${Do} kind="small" command=${removeCommand(own)} label="undo" words=${`undo ${shown(what, 100)}`} />`
          : html`<small class="dim">on the page of b${broker}</small>`
      }
    </td>
  </tr>`;
}

// How much is not as usual, for every place, and all that makes it so again.
export function Faulty({ now }) {
  const { links, disks, rules } = now;
  const counts = Object.entries({ cable: links, disk: disks, rule: rules }).map(([noun, table]) => [Object.keys(table).length, noun]);
  const found = counts.filter(([number]) => number);
  const all = found.reduce((sum, [number]) => sum + number, 0);
  const words = found.map(([number, noun]) => many(number, noun)).join(", ");
  const clear = { method: "DELETE", shell: "minibroker faults clear", python: `${faultsOf(ownBroker)}.clear()` };
  const undo = async () => {
    if (Object.keys(links).length) await run(verb("heal"));
    if (Object.keys(disks).length) await run(verb("heal-disk"));
    if (!Object.keys(rules).some((key) => key.startsWith(`${ownBroker}/`))) return;
    for (const path of ["faults", "toxics"]) await run({ ...clear, path });
  };
  return html`<div class="faulty">
    <a href="#/faults">${words}</a> ${all === 1 ? "is" : "are"} not as usual
    <button type="button" onClick=${undo} aria-disabled=${mayChange.value ? undefined : "true"}>undo ${all === 1 ? "it" : "all"}</button>
  </div>`;
}
