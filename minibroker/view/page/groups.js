// The place Groups: who reads, what each believes to own beside what is meant for it, and how far all of it is.

import { html, signal } from "./vendor.js";
import { state } from "./feed.js";
import { Find, fits } from "./asking.js";
import { count, many, part, placeOf, shown } from "./text.js";

const SHOWN_MAX = 8; // groups whose members the feed tells
const LISTED_MAX = 200;
const PLACES_MAX = 64;
const NAMED_MAX = 10;
const FIGURES = ["committed", "position", "last_stable_offset", "high_watermark", "log_end_offset"];
const LAGS = ["lag_to_lso", "lag_to_hw", "lag_to_leo"];
const filter = signal("");

const found = (now) =>
  Object.keys(now.groups)
    .filter((name) => fits(filter, name))
    .sort();

// Rows of partitions are for other places.
export function query(now, [name]) {
  const chosen = name
    ? [name]
    : now && Object.keys(now.groups).length > SHOWN_MAX
      ? found(now).slice(0, SHOWN_MAX)
      : [];
  return ["sums=1&topics=", ...chosen.map((each) => `groups=${part(each)}`)].join("&");
}

export function View({ path: [name] }) {
  const now = state.value;
  const all = Object.keys(now.groups);
  if (!all.length) return html`<${Nobody} now=${now} />`;
  const names = name ? [name] : found(now);
  const details = names.filter((each) => now.members[each]).slice(0, name ? 1 : SHOWN_MAX);
  return html`
    ${
      name
        ? html`<p><a class="back" href="#/groups">all ${many(all.length, "group")}</a></p>`
        : all.length > 1
          ? html`<${List} now=${now} names=${names} all=${all.length} />`
          : null
    }
    ${name && !now.groups[name] ? html`<p class="empty-place">There is no group <bdi>${shown(name, 60)}</bdi> here.</p>` : null}
    ${
      !name && names.length > details.length
        ? html`<p class="more">Of ${details.length} of them there is more below: name those that you look for.</p>`
        : null
    }
    ${details.map((each) => html`<${Group} key=${each} group=${now.members[each]} />`)}
  `;
}

function Nobody({ now }) {
  return html`<div class="empty-place">
    <p>No group reads here yet. Any consumer with a group.id begins one:</p>
    <code>bootstrap.servers=${shown(String(now.cluster.bootstrap).split(",")[0])} group.id=readers</code>
  </div>`;
}

function List({ now, names, all }) {
  return html`<section class="panel" aria-label="All groups">
    <header class="tools">
      <h2>${many(all, "group")}</h2>
      <${Find} filter=${filter} noun="group" />
    </header>
    <div class="scroll">
      <table>
        <thead>
          <tr>
            ${["group", "state", "protocol"].map((each) => html`<th scope="col">${each}</th>`)}
            ${["epoch", "members"].map((each) => html`<th scope="col" class="number">${each}</th>`)}
            <th scope="col">coordinator</th>
          </tr>
        </thead>
        <tbody>
          ${names.slice(0, LISTED_MAX).map((name) => {
            const [type, protocol, how, epoch, members, coordinator] = now.groups[name];
            return html`<tr key=${name}>
              <th scope="row">
                <a href=${`#/groups/${part(name)}`}><bdi>${shown(name, 60)}</bdi></a>
              </th>
              <td class=${how === "Stable" || how === "Empty" ? "" : "warn"}>${how}</td>
              <td>${type}${protocol && protocol !== "consumer" ? ` of ${shown(protocol, 30)}` : ""}</td>
              <td class="number">${count(epoch)}</td>
              <td class="number">${count(members)}</td>
              <td>b${coordinator}</td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>
    ${names.length > LISTED_MAX ? html`<p class="more">and ${many(names.length - LISTED_MAX, "more group")}</p>` : null}
  </section>`;
}

const placesOf = (list) => (list ?? []).map(([topic, number]) => placeOf(topic, number));

function Group({ group }) {
  const isClassic = group.type === "Classic";
  const lag = group.partitions.reduce((sum, row) => sum + (row.lag_to_hw ?? 0), 0);
  const nobodys = group.members.length ? group.partitions.filter((row) => row.member === null) : [];
  return html`<article class="panel reads" aria-label=${`Group ${shown(group.group, 60)}`}>
    <header>
      <h3>
        <a href=${`#/groups/${part(group.group)}`}><bdi>${shown(group.group, 80)}</bdi></a>
      </h3>
      <div class="facts">
        <b class=${group.state === "Stable" || group.state === "Empty" ? "" : "warn"}>${group.state}</b>
        <span>${isClassic ? "generation" : "epoch"} <b>${group.epoch}</b></span>
        <span>${isClassic ? "classic protocol" : "consumer protocol (KIP-848)"}</span>
        ${group.assignor ? html`<span>assignor ${shown(group.assignor, 40)}</span>` : null}
        <span>coordinator <b>b${group.coordinator}</b></span>
        <span>lag to HW <b>${count(lag)}</b></span>
      </div>
    </header>
    ${
      group.members.length
        ? html`<${Members} group=${group} isClassic=${isClassic} />`
        : html`<p class="more">Nobody is in; these are the offsets that it has committed.</p>`
    }
    ${group.partitions.length ? html`<${Places} rows=${group.partitions} members=${group.members} />` : null}
    ${
      nobodys.length
        ? html`<p class="warn">${`Nobody reads ${names(nobodys)}.`}</p>`
        : null
    }
  </article>`;
}

function names(rows) {
  const some = rows.slice(0, NAMED_MAX).map((row) => placeOf(row.topic, row.partition));
  return some.join(", ") + (rows.length > some.length ? ` and ${rows.length - some.length} more` : "");
}

// Partitions of a member; those of them that it is not to have, or has not got yet, say so.
function Held({ places, others, words, why }) {
  if (!places.length) return html`<span class="dim">nothing</span>`;
  return places.map((place) => {
    const is = others.includes(place);
    return html`<span key=${place} class=${is ? "place" : "place warn"} title=${is ? "" : why}>
      ${is ? place : `${place} ${words}`}
    </span>`;
  });
}

function Members({ group, isClassic }) {
  return html`<div class="scroll">
    <table>
      <caption class="spoken">
        Members of ${shown(group.group, 60)}
      </caption>
      <thead>
        <tr>
          <th scope="col">member</th>
          <th scope="col">believes to own</th>
          <th scope="col">assigned</th>
          <th scope="col" class="number">${isClassic ? "generation" : "epoch"}</th>
          <th scope="col">from</th>
        </tr>
      </thead>
      <tbody>
        ${group.members.map((member) => {
          const owned = placesOf(member.owned);
          const assigned = placesOf(member.target ?? member.assignment);
          return html`<tr key=${member.id}>
            <th scope="row" title=${shown(member.id, 120)}>
              <bdi>${shown(member.client_id || member.id, 40)}</bdi
              >${member.instance_id ? html` <small class="dim">static ${shown(member.instance_id, 30)}</small>` : null}
            </th>
            <td>
              <${Held} places=${owned} others=${assigned} words="gives up" why="it reads this still" />
            </td>
            <td>
              <${Held} places=${assigned} others=${owned} words="waits" why="meant for it, and not yet its own" />
            </td>
            <td class=${`number ${member.epoch < group.epoch ? "warn" : ""}`}>${member.epoch}</td>
            <td class="dim">${shown(member.host, 40)}</td>
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}

const figure = (number) => (number === null ? html`<span class="dim">–</span>` : count(number));

function Places({ rows, members }) {
  const names = Object.fromEntries(members.map((member) => [member.id, member.client_id || member.id]));
  return html`<div class="scroll">
    <table>
      <caption class="spoken">
        Partitions and lags
      </caption>
      <thead>
        <tr>
          <th scope="col">partition</th>
          <th scope="col">how far</th>
          ${["committed", "reads at", "LSO", "HW", "LEO"].map((name) => html`<th scope="col" class="number">${name}</th>`)}
          <th scope="col" class="number" title="what consumers of committed transactions have to read still">
            lag to LSO
          </th>
          <th scope="col" class="number" title="what kafka-consumer-groups calls lag">lag to HW</th>
          <th scope="col" class="number" title="with what is not committed yet">lag to LEO</th>
          <th scope="col">member</th>
        </tr>
      </thead>
      <tbody>
        ${rows.slice(0, PLACES_MAX).map(
          (row) =>
            html`<tr key=${placeOf(row.topic, row.partition)}>
              <th scope="row">
                <a href=${`#/cluster/${part(row.topic)}/${row.partition}`}
                  ><bdi>${shown(placeOf(row.topic, row.partition), 60)}</bdi></a
                >
              </th>
              <td><${Far} row=${row} /></td>
              ${FIGURES.map((name) => html`<td class="number">${figure(row[name])}</td>`)}
              ${LAGS.map((name) => html`<td class=${`number ${row[name] ? "warn" : ""}`}>${figure(row[name])}</td>`)}
              <td>
                ${
                  row.member === null
                    ? html`<span class="dim">nobody</span>`
                    : html`<bdi>${shown(names[row.member] ?? row.member, 40)}</bdi>`
                }
              </td>
            </tr>`,
        )}
      </tbody>
    </table>
    ${rows.length > PLACES_MAX ? html`<p class="more">and ${many(rows.length - PLACES_MAX, "more partition")}</p>` : null}
  </div>`;
}

// What is committed, of all that there is: the rest is hatched.
function Far({ row }) {
  const { log_start_offset: start, high_watermark: hw, log_end_offset: leo, committed } = row;
  if (leo === null) return html`<span class="dim">nobody leads</span>`;
  const all = Math.max(leo - start, 1);
  const x = (offset) => (Math.max(0, Math.min(offset - start, all)) / all) * 120;
  const done = x(committed ?? start);
  return html`<svg
    class="far"
    width="120"
    height="14"
    role="img"
    aria-label=${committed === null ? "nothing is committed" : `${count(row.lag_to_hw ?? 0)} behind the high watermark`}
  >
    <rect class="ground" width="120" height="10" y="2" rx="3" />
    <rect class="e0" width=${x(hw)} height="10" y="2" />
    <rect class="hatch" x=${done} width=${Math.max(x(hw) - done, 0)} height="10" y="2" />
    ${committed === null ? null : html`<g class="reader"><circle cx=${Math.max(3, Math.min(done, 117))} cy="7" r="3.2" /></g>`}
  </svg>`;
}
