// The place Topics: all there are, how well they are, and how much is in them.

import { html, signal } from "./vendor.js";
import { state } from "./feed.js";
import { Find, fits } from "./asking.js";
import { HEALTH } from "./cells.js";
import { isInternal, showsInternal, WORST } from "./cluster.js";
import { bytes, count, many, part, shown } from "./text.js";

const LISTED_MAX = 200;
const filter = signal("");
const order = signal("name");
const ORDERS = {
  name: (now) => (a, b) => (a < b ? -1 : 1),
  partitions: (now) => (a, b) => now.topics[b][1] - now.topics[a][1],
  health: (now) => (a, b) => rank(now.cells[a]) - rank(now.cells[b]),
  records: (now) => (a, b) => (records(now, b) ?? 0) - (records(now, a) ?? 0),
  bytes: (now) => (a, b) => (now.sums[b]?.[2] ?? 0) - (now.sums[a]?.[2] ?? 0),
};

export const query = () => "sums=1&topics=";

const rank = (letters) => Math.min(...[...new Set(letters ?? "")].map((letter) => WORST.indexOf(letter)), WORST.length);
const records = (now, topic) => (now.sums[topic] ? now.sums[topic][1] - now.sums[topic][0] : null);

export function View() {
  const now = state.value;
  const all = Object.keys(now.topics).filter((topic) => showsInternal.value || !isInternal(topic));
  const hidden = Object.keys(now.topics).length - all.length;
  const found = all
    .filter((topic) => fits(filter, topic))
    .sort(ORDERS[order.value](now));
  const heading = (name, words = name, kind = "") =>
    html`<th
      scope="col"
      class=${kind}
      aria-sort=${order.value === name ? (name === "name" ? "ascending" : "descending") : undefined}
    >
      <button type="button" class="sort" onClick=${() => (order.value = name)}>${words}</button>
    </th>`;
  return html`<section class="panel" aria-label="All topics">
    <header class="tools">
      <h2>${many(all.length, "topic")}</h2>
      <${Find} filter=${filter} noun="topic" />
      <label class="check"
        ><input
          type="checkbox"
          checked=${showsInternal.value}
          onChange=${(event) => (showsInternal.value = event.target.checked)}
        />internal topics${hidden ? ` (${hidden})` : ""}</label
      >
    </header>
    ${
      found.length
        ? html`<div class="scroll">
            <table>
              <thead>
                <tr>
                  ${heading("name", "topic")}${heading("partitions", "partitions", "number")}
                  <th scope="col" class="number">replicas</th>
                  ${heading("health")}${heading("records", "records", "number")}${heading("bytes", "bytes", "number")}
                  <th scope="col">settings of its own</th>
                </tr>
              </thead>
              <tbody>
                ${found.slice(0, LISTED_MAX).map((topic) => html`<${Topic} key=${topic} topic=${topic} now=${now} />`)}
              </tbody>
            </table>
          </div>`
        : html`<p class="more">${all.length ? "None is called so." : "There is none yet."}</p>`
    }
    ${found.length > LISTED_MAX ? html`<p class="more">and ${many(found.length - LISTED_MAX, "more topic")}</p>` : null}
  </section>`;
}

function Topic({ topic, now }) {
  const [, partitions, factor, , settings] = now.topics[topic];
  const letters = now.cells[topic] ?? "";
  const sum = now.sums[topic];
  const kinds = WORST.filter((letter) => letters.includes(letter));
  return html`<tr>
    <th scope="row">
      <a href=${`#/topic/${part(topic)}`}><bdi>${shown(topic)}</bdi></a>
    </th>
    <td class="number">${count(partitions)}</td>
    <td class="number">${factor}</td>
    <td>
      ${kinds.map((letter) => {
        const some = kinds.length > 1 ? `${letters.split(letter).length - 1} ` : "";
        return html`<span key=${letter} class="health"><i class=${`swatch h-${letter}`}></i>${some}${HEALTH[letter]}</span>`;
      })}
    </td>
    <td class="number">${sum ? count(sum[1] - sum[0]) : "…"}</td>
    <td class="number">${sum ? bytes(sum[2]) : "…"}</td>
    <td class="settings">
      ${Object.entries(settings).map(([name, value]) => html`<code key=${name}>${shown(name, 60)}=${shown(value, 60)}</code> `)}
    </td>
  </tr>`;
}
