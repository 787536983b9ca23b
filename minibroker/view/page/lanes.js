// A partition, replica by replica: its log as a lane of offsets, and what each replica believes of it.
//
// What must hold: lanes of one partition have one scale, so what is at the same offset stands in the same column. Nothing
// is told by colour alone: hatched is not committed, dotted has gone, letters are markers.

import { html, signal, useEffect, useMemo, useRef, useState } from "./vendor.js";
import { mayChange, state } from "./feed.js";
import { isCluster, verb } from "./commands.js";
import { Do, later } from "./controls.js";
import { count, part, placeOf, shown, span } from "./text.js";

const CELL = 15; // pixels at least, for a record of its own
const CELL_MAX = 36;
const HEIGHT = 30;
const WINDOWS = [50, 200, 1000, 10_000, Infinity];
const Letters = later("letters", "Letters");
const Table = later("tables", "Table");
export const lastRecords = signal(200); // so many are shown of a long log
export const asTable = signal(false);

export function zoom(by) {
  const at = WINDOWS.indexOf(lastRecords.value);
  lastRecords.value = WINDOWS[Math.max(0, Math.min(WINDOWS.length - 1, at + by))];
}
export const windowWords = (most) => (most === Infinity ? "all of the log" : `last ${count(most)} offsets`);

// What a state has of a partition and its replicas, by names.
export function partitionOf(now, key) {
  const row = now.rows[key];
  if (!row) return null;
  const [topic, number, leader, epoch, isr, elr, replicas, adding, removing, states] = row;
  const lanes = states.map((each) => {
    const [broker, start, hw, leo, lso, believed, isLeader, fetched, caughtUp] = each;
    const at = `${key}@${broker}`;
    const [segments, epochs, clean] = now.logs[at] ?? [[], [], -1];
    const [texts, markers, gaps] = now.contents[at] ?? [{}, {}, []];
    const how = now.brokers[broker]?.[1] ?? "gone";
    const runs = each.length > 1 && at in now.logs;
    return {
      broker,
      runs,
      how,
      start,
      hw,
      leo,
      lso,
      believed,
      isLeader,
      fetched,
      caughtUp,
      segments,
      epochs,
      clean,
      texts,
      markers,
      gaps,
    };
  });
  return {
    key,
    topic,
    number,
    leader,
    epoch,
    isr,
    elr,
    replicas,
    adding,
    removing,
    lanes: lanes.sort((a, b) => a.broker - b.broker),
  };
}

export function roleOf(partition, lane) {
  if (!lane.runs || lane.how !== "running") return lane.how;
  if (partition.leader === lane.broker) return "leader";
  if (lane.isLeader) return "led once";
  return partition.isr.includes(lane.broker) ? "in sync" : "behind";
}

const places = (ids) => (ids.length ? `{${ids.join(",")}}` : "nobody");

// Three lags by their names: of a follower behind its leader.
export function behind(partition, lane) {
  const leader = partition.lanes.find((each) => each.broker === partition.leader && each.runs);
  if (!leader || leader === lane || !lane.runs) return null;
  return { leo: leader.leo - lane.leo, hw: leader.hw - lane.hw, lso: leader.lso - lane.lso };
}

function readersOf(now, partition) {
  const found = [];
  for (const group of Object.values(now.members)) {
    const row = group.partitions.find((each) => each.topic === partition.topic && each.partition === partition.number);
    if (row && row.committed !== null) found.push({ group: group.group, ...row });
  }
  return found;
}

function lettersOf(now, key) {
  return Object.entries(now.gates)
    .filter(([, row]) => row[5].some((each) => each.partition === key))
    .sort((a, b) => a[1][1] - b[1][1]);
}

export function Partition({ id }) {
  const now = state.value;
  const row = now.rows[id];
  const frame = useRef(null);
  const width = useWidth(frame);
  const replicas = row?.[9] ?? [];
  const isLagging = replicas.some((each) => typeof each[8] === "number" && each[8] >= 0);
  const logs = replicas.flatMap((each) => [now.logs[`${id}@${each[0]}`], now.contents[`${id}@${each[0]}`]]);
  const seen = [row, width, now.brokers, now.gates, now.members, lastRecords.value, asTable.value, mayChange.value];
  const body = useMemo(
    () => (row ? draw(now, partitionOf(now, id), width) : null),
    [...seen, isLagging ? now.steady_ms : 0, ...logs],
  );
  return html`<article class="partition" ref=${frame} id=${`part-${id}`} aria-label=${id}>${body}</article>`;
}

function useWidth(frame) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const track = () => frame.current?.querySelector(".measure") ?? frame.current;
    const look = () => setWidth(Math.round(track()?.clientWidth ?? 0));
    const observer = new ResizeObserver(look);
    if (frame.current) observer.observe(frame.current);
    look();
    return () => observer.disconnect();
  }, []);
  return width;
}

function draw(now, partition, width) {
  const letters = lettersOf(now, partition.key);
  const readers = readersOf(now, partition);
  return html`
    <${Head} partition=${partition} />
    ${
      asTable.value
        ? html`<${Table} now=${now} partition=${partition} />`
        : html`<div class="lanes">
            <div class="lane names" aria-hidden="true">
              <span></span><span class="measure"></span> <span>start</span><span>LSO</span><span>HW</span
              ><span>LEO</span><span title="behind its leader: offsets to LEO, HW, LSO">behind</span>
            </div>
            ${partition.lanes.map(
              (lane) =>
                html`<${Lane} key=${lane.broker} now=${now} partition=${partition} lane=${lane} readers=${readers} width=${width} />`,
            )}
          </div>`
    }
    ${letters.length ? html`<${Letters} letters=${letters} id=${partition.key} />` : null}
    ${
      readers.length
        ? html`<ul class="readers">
            ${readers.map((each) => html`<${Reader} key=${each.group} row=${each} />`)}
          </ul>`
        : null
    }
  `;
}

function Head({ partition }) {
  const { topic, number, leader, epoch, isr, elr, replicas, adding, removing } = partition;
  const facts = [
    leader < 0 ? html`<b class="bad">nobody leads</b>` : html`<span>leader <b>b${leader}</b></span>`,
    html`<span>epoch <b>${epoch}</b></span>`,
    html`<span title="replicas in sync">ISR <b>${places(isr)}</b></span>`,
    elr.length
      ? html`<span title="not in sync, and may be elected all the same (KIP-966)">ELR <b>${places(elr)}</b></span>`
      : null,
    isr.length < replicas.length ? html`<span>replicas ${places(replicas)}</span>` : null,
    adding.length ? html`<span>adding ${places(adding)}</span>` : null,
    removing.length ? html`<span>removing ${places(removing)}</span>` : null,
  ];
  return html`<header>
    <h3>
      <a href=${`#/cluster/${part(topic)}/${number}`}><bdi>${shown(placeOf(topic, number))}</bdi></a>
    </h3>
    <div class="facts">${facts}</div>
    ${
      isCluster() && replicas[0] !== leader && leader >= 0
        ? html`<${Do}
            command=${verb("elect", { topic, partition: number })}
            label=${`b${replicas[0]} leads again`}
            words="Give it back to its preferred leader"
          />`
        : null
    }
  </header>`;
}

function Lane({ now, partition, lane, readers, width }) {
  const role = roleOf(partition, lane);
  const lags = behind(partition, lane);
  const late = lags !== null && lags.leo > 0 && isLate(now, lane);
  const old = lane.runs && lane.believed < partition.epoch;
  const mayLead = isCluster() && role === "in sync" && partition.leader >= 0;
  return html`<div class=${`lane ${role.replace(" ", "-")}`}>
    <div class="who">
      <b class="id"><a href=${`#/log/${part(partition.topic)}/${partition.number}@${lane.broker}`}>b${lane.broker}</a></b
      ><span class="role">${role}</span>
      ${
        lane.runs
          ? html`<span
              class=${`epoch e${lane.believed % 6} ${old ? "old" : ""}`}
              title=${old ? "it has not heard yet that there is a newer one" : "the leader epoch that this replica knows"}
              >epoch ${lane.believed}</span
            >`
          : null
      }
      ${
        mayLead
          ? html`<${Do}
              kind="small"
              command=${verb("move-leader", { topic: partition.topic, partition: partition.number, broker: lane.broker })}
              label="lead"
              words=${`Let broker ${lane.broker} lead ${partition.key}`}
            />`
          : null
      }
      <${Seen} now=${now} partition=${partition} lane=${lane} />
    </div>
    <${Track}
      partition=${partition}
      lane=${lane}
      role=${role}
      readers=${lane.broker === partition.leader ? readers : []}
      width=${width}
    />
    ${
      lane.runs
        ? html`<span class="figure" aria-hidden="true" data-name="start">${count(lane.start)}</span>
            <span class=${`figure ${lane.lso < lane.hw ? "marked" : ""}`} aria-hidden="true" data-name="LSO"
              >${count(lane.lso)}</span
            >
            <span class="figure" aria-hidden="true" data-name="HW">${count(lane.hw)}</span>
            <span class="figure" aria-hidden="true" data-name="LEO">${count(lane.leo)}</span>
            <span
              class=${`figure ${late ? "marked" : "dim"}`}
              aria-hidden="true"
              data-name="behind"
              title=${lags ? lagWords(lags) : ""}
            >
              ${lags ? (lags.leo || lags.hw || lags.lso ? `${lags.leo} / ${lags.hw} / ${lags.lso}` : "0") : "–"}
            </span>`
        : html`<span class="figure none">does not run</span>`
    }
  </div>`;
}

const lagWords = ({ leo, hw, lso }) => `behind the leader: ${leo} to LEO, ${hw} to HW, ${lso} to LSO`;

// What the leader knows of a follower that lags: where it asked last, and since when. For a moment each of them does.
const LATE_MS = 500;
const isLate = (now, lane) => lane.caughtUp !== null && (lane.caughtUp < 0 || now.steady_ms - lane.caughtUp > LATE_MS);

function Seen({ now, partition, lane }) {
  if (lane.broker === partition.leader || !lane.runs || lane.fetched < 0 || !isLate(now, lane)) return null;
  const since = lane.caughtUp < 0 ? "never had all" : `had all ${span(now.steady_ms - lane.caughtUp)} ago`;
  return html`<small class="seen">asked from ${count(lane.fetched)}, ${since}</small>`;
}

function Track({ partition, lane, role, readers, width }) {
  const running = partition.lanes.filter((each) => each.runs);
  const first = Math.min(...running.map((each) => each.start));
  const end = Math.max(...running.map((each) => each.leo));
  if (!lane.runs || !running.length || width < 10) {
    return html`<svg
      class="track off"
      viewBox=${`0 0 ${Math.max(width, 1)} ${HEIGHT}`}
      height=${HEIGHT}
      role="img"
      aria-label=${`Broker ${lane.broker}, ${role}`}
    >
      <line x1="0" x2="100%" y1=${HEIGHT / 2} y2=${HEIGHT / 2} class="nothing" />
    </svg>`;
  }
  const from = Math.max(first, end - lastRecords.value);
  const records = end - from;
  const room = width - 10;
  const step = records ? Math.min(room / records, CELL_MAX) : 0;
  const x = (offset) => 2 + (Math.max(from, Math.min(offset, end)) - from) * step;
  return html`<svg
    class="track"
    viewBox=${`0 0 ${width} ${HEIGHT}`}
    width=${width}
    height=${HEIGHT}
    role="img"
    aria-label=${sentence(partition, lane, role)}
  >
    <rect class="ground" x="0" y="4" width=${width} height=${HEIGHT - 10} rx="4" />
    ${records ? null : html`<text class="empty" x="8" y="18">empty</text>`}
    ${records ? runs(lane, from, x) : null}
    ${step >= CELL ? cells(lane, from, x, step) : null}
    ${records ? marks(partition, lane, from, x, readers) : null}
  </svg>`;
}

function sentence(partition, lane, role) {
  const open = lane.lso < lane.hw ? `, last stable offset ${lane.lso}` : "";
  const who = role === "leader" ? `leader in epoch ${lane.believed}` : `${role}, epoch ${lane.believed}`;
  const lags = behind(partition, lane);
  const late = lags && (lags.leo || lags.hw || lags.lso) ? `, ${lagWords(lags)}` : "";
  return `Broker ${lane.broker}, ${who}: log start ${lane.start}, high watermark ${lane.hw}${open}, log end ${lane.leo}${late}`;
}

// The log in runs of one epoch each; hatched what is not committed, dotted what compaction or retention has taken.
function runs(lane, from, x) {
  const found = [];
  const bar = (start, end, name, key) => {
    if (end > start && end > from)
      found.push(
        html`<rect
          key=${key}
          class=${name}
          x=${x(start)}
          y="7"
          width=${Math.max(x(end) - x(start), 1.5)}
          height=${HEIGHT - 16}
        />`,
      );
  };
  const begins = lane.epochs.length ? lane.epochs : [[lane.believed, lane.start]];
  begins.forEach(([epoch, start], at) => {
    const a = Math.max(start, lane.start);
    const b = at + 1 < begins.length ? begins[at + 1][1] : lane.leo;
    bar(at ? a : lane.start, b, `e${epoch % 6}`, `e${at}`);
  });
  bar(lane.hw, lane.leo, "hatch", "hatch");
  if (lane.lso < lane.hw) bar(lane.lso, lane.hw, "open", "open");
  for (const [start, end] of lane.gaps) bar(start, end, "gap", `g${start}`);
  if (lane.start > from)
    found.push(
      html`<line key="gone" class="nothing" x1="2" x2=${x(lane.start)} y1=${HEIGHT / 2 - 1} y2=${HEIGHT / 2 - 1} />`,
    );
  return found;
}

function cells(lane, from, x, step) {
  const found = [];
  const letters = Math.floor((step - 3) / 6.5); // that there is room for
  for (let offset = Math.max(from, lane.start); offset < lane.leo; offset += 1) {
    const marker = lane.markers[offset];
    const text = lane.texts[offset];
    const value = text === undefined ? "" : shown(text.replace(/^.*=/, "") || text, 20);
    const sign = marker ? (marker === "commit" ? "C" : "A") : value.length <= letters ? value : "";
    const words = marker ? `${marker} marker` : text === undefined ? "" : shown(text, 24);
    const how = offset < lane.hw ? "committed" : "not committed";
    const name = `sign ${marker ? "marker" : ""} ${offset < lane.hw ? "" : "loose"}`;
    found.push(
      html`<g key=${offset}>
        <title>${`offset ${offset}${words ? `: ${words}` : ""}, ${how}`}</title>
        <rect class="cell" x=${x(offset)} y="7" width=${step} height=${HEIGHT - 16} />
        ${sign ? html`<text class=${name} x=${x(offset) + step / 2} y="18">${sign}</text>` : null}
      </g>`,
    );
  }
  return found;
}

function marks(partition, lane, from, x, readers) {
  const found = [];
  const low = HEIGHT - 9;
  for (const base of lane.segments.slice(1)) {
    if (base > from && base <= lane.leo)
      found.push(
        html`<line key=${`s${base}`} class="segment" x1=${x(base)} x2=${x(base)} y1="4" y2=${low + 3}
          ><title>segment ${base}</title></line
        >`,
      );
  }
  if (lane.lso < lane.hw)
    found.push(
      html`<line key="lso" class="lso" x1=${x(lane.lso)} x2=${x(lane.lso)} y1="2" y2=${low + 2}
        ><title>last stable offset ${lane.lso}: an open transaction begins here</title></line
      >`,
    );
  found.push(
    html`<g key="hw" class="hw"
      ><title>high watermark ${lane.hw}</title><line x1=${x(lane.hw)} x2=${x(lane.hw)} y1="1" y2=${low + 3} /><path
        d=${`M${x(lane.hw) - 4.5} 0h9l-4.5 6z`}
    /></g>`,
  );
  if (lane.broker === partition.leader) {
    for (const each of partition.lanes) {
      if (each === lane || !(each.fetched >= 0)) continue;
      found.push(
        html`<g key=${`f${each.broker}`} class="follower"
          ><title>broker ${each.broker} asked last from ${each.fetched}</title
          ><path d=${`M${x(each.fetched) - 4} ${HEIGHT - 1}h8l-4 -6z`}
        /></g>`,
      );
    }
    for (const each of readers) {
      found.push(
        html`<g key=${`r ${each.group}`} class="reader"
          ><title>${shown(each.group, 40)} has committed ${each.committed}</title
          ><circle cx=${x(each.committed)} cy=${HEIGHT - 4} r="3.2"
        /></g>`,
      );
    }
  }
  return found;
}

function Lags({ row }) {
  const [lso, hw, leo] = [row.lag_to_lso, row.lag_to_hw, row.lag_to_leo].map((lag) => html`<b>${count(lag)}</b>`);
  return html` · lag ${lso} to LSO, ${hw} to HW, ${leo} to LEO`;
}

function Reader({ row }) {
  return html`<li>
    <span class="dot"></span><a href=${`#/groups/${part(row.group)}`}><bdi>${shown(row.group, 40)}</bdi></a> committed
    ${count(row.committed)}${row.position === null ? "" : `, reads at ${count(row.position)}`}
    ${row.lag_to_leo === null ? null : html`<${Lags} row=${row} />`}
  </li>`;
}
