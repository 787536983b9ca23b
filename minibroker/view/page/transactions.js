// The place Transactions: transactional ids by what becomes of them, and what they hold back in partitions.

import { html, signal } from "./vendor.js";
import { state } from "./feed.js";
import { isCluster, literal, quoted, verb } from "./commands.js";
import { Do } from "./controls.js";
import { Find, fits } from "./asking.js";
import { partitionOf } from "./lanes.js";
import { count, many, part, placeOf, shown, span } from "./text.js";

const LISTED_MAX = 200;
const ROWS_MAX = 64; // partitions that the feed tells
const NAMED_MAX = 8; // partitions of one transaction
const filter = signal("");
const COLUMNS = ["transactional id", "state", "producer id, epoch", "open for", "timeout", "partitions", "coordinator", ""];

// Those that are open first, the oldest in front.
function found(now) {
  const rank = ([, [how, , , , start]]) => (how.startsWith("Complete") ? Infinity : (start ?? Infinity));
  return Object.entries(now.transactions)
    .filter(([id]) => fits(filter, id))
    .sort((a, b) => (rank(a) === rank(b) ? (a[0] < b[0] ? -1 : 1) : rank(a) - rank(b)));
}

// Of few partitions all, so that a transaction is seen that no coordinator knows of; of many those that somebody writes to.
export function query(now) {
  const all = Object.values(now?.cells ?? {}).join("").length;
  if (all <= ROWS_MAX) return "sums=1";
  const keys = found(now).flatMap(([, row]) => row[5].map((place) => placeOf(...place)));
  const some = [...new Set(keys)].slice(0, ROWS_MAX);
  return `sums=1&${some.length ? `parts=${some.map(part)}` : "topics="}`;
}

export function View() {
  const now = state.value;
  const all = Object.keys(now.transactions).length;
  const rows = found(now);
  const held = Object.keys(now.rows)
    .map((key) => heldOf(now, key))
    .filter(Boolean);
  return html`
    ${
      all
        ? html`<section class="panel" aria-label="All transactional ids">
            <header class="tools">
              <h2>${many(all, "transactional id")}</h2>
              <${Find} filter=${filter} noun="transaction" />
            </header>
            <div class="scroll">
              <table>
                <thead>
                  <tr>
                    ${COLUMNS.map((each) => html`<th scope="col">${each}</th>`)}
                  </tr>
                </thead>
                <tbody>
                  ${rows.slice(0, LISTED_MAX).map(([id, row]) => html`<${Row} key=${id} id=${id} row=${row} now=${now} />`)}
                </tbody>
              </table>
            </div>
            ${rows.length ? null : html`<p class="more">None is called so.</p>`}
            ${rows.length > LISTED_MAX ? html`<p class="more">and ${many(rows.length - LISTED_MAX, "more transactional id")}</p>` : null}
          </section>`
        : html`<div class="empty-place">
            <p>No transactional id is known here yet. A producer that has one begins it with its first transaction:</p>
            <code>bootstrap.servers=${shown(String(now.cluster.bootstrap).split(",")[0])} transactional.id=pay-1</code>
          </div>`
    }
    ${
      held.length
        ? html`<section class="panel" aria-label="What is held back">
            <header class="tools"><h2>What is held back</h2></header>
            <div class="scroll">
              <table>
                <thead>
                  <tr>
                    <th scope="col">partition</th>
                    ${["LSO", "HW", "held back"].map((each) => html`<th scope="col" class="number">${each}</th>`)}
                    <th scope="col">because of</th>
                  </tr>
                </thead>
                <tbody>
                  ${held.map((each) => html`<${Held} key=${each.key} held=${each} now=${now} />`)}
                </tbody>
              </table>
            </div>
            <p class="more">Readers of committed records stop at the LSO, the last stable offset; all others read up to the HW.</p>
          </section>`
        : null
    }
  `;
}

function abortCommand(id) {
  if (isCluster()) return verb("abort-transaction", { id });
  return {
    method: "POST",
    path: "abort-transaction",
    body: { id },
    python: `broker.abort_transaction(${literal(id)})`,
    shell: `minibroker transactions force-terminate --transactional-id ${quoted(id)}`,
  };
}

function Row({ id, row, now }) {
  const [how, producer, epoch, timeout, start, places, coordinator] = row;
  const name = shown(id, 80);
  const isOpen = how === "Ongoing";
  const waits = how.startsWith("Prepare") ? "waits for its marker" : "";
  const since = isOpen || waits ? start : null;
  return html`<tr>
    <th scope="row"><bdi>${name}</bdi></th>
    <td class=${isOpen || waits ? "warn" : ""}>${how}</td>
    <td>${producer}, ${epoch}</td>
    <td>${since === null ? html`<span class="dim">–</span>` : span(Math.max(now.t - since, 0))}</td>
    <td>${span(timeout)}</td>
    <td>
      ${places.slice(0, NAMED_MAX).map((place) => {
        const key = placeOf(...place);
        return html`<a class="place" key=${key} href=${`#/cluster/${part(place[0])}/${place[1]}`} title=${waits}
          ><bdi>${shown(key, 60)}</bdi></a
        >`;
      })}
      ${places.length > NAMED_MAX ? html`<span class="dim">and ${count(places.length - NAMED_MAX)} more</span>` : null}
    </td>
    <td>b${coordinator}</td>
    <td>
      ${
        isOpen
          ? html`<${Do} kind="small" danger command=${abortCommand(id)} label="abort" words=${`abort the transaction of ${name}`} />`
          : null
      }
    </td>
  </tr>`;
}

// Where a transaction keeps the LSO below the HW, as its leader has it: [first offset, producer id] of those that are open.
function heldOf(now, key) {
  const partition = partitionOf(now, key);
  const lane = partition.lanes.find((each) => each.broker === partition.leader && each.runs);
  const open = now.logs[`${key}@${partition.leader}`]?.[4] ?? [];
  return lane && (lane.lso < lane.hw || open.length) ? { ...partition, lso: lane.lso, hw: lane.hw, open } : null;
}

function Held({ held, now }) {
  const { topic, number, key, lso, hw, open } = held;
  const idOf = (producer) => Object.keys(now.transactions).find((id) => now.transactions[id][1] === producer);
  const words = ([first, producer]) => {
    const id = idOf(producer);
    const who = id === undefined ? `producer ${producer}, of which no coordinator knows` : shown(id, 60);
    return html`<span class="place" key=${first}><bdi>${who}</bdi> since ${count(first)}</span>`;
  };
  return html`<tr>
    <th scope="row">
      <a href=${`#/cluster/${part(topic)}/${number}`}><bdi>${shown(key, 80)}</bdi></a>
    </th>
    <td class="number">${count(lso)}</td>
    <td class="number">${count(hw)}</td>
    <td class="number warn">${many(hw - lso, "record")}</td>
    <td>
      ${open.slice(0, NAMED_MAX).map(words)} ${open.length > NAMED_MAX ? `and ${open.length - NAMED_MAX} more` : ""}
      ${open.length ? null : html`<span class="dim">a marker that is not replicated yet</span>`}
    </td>
  </tr>`;
}
