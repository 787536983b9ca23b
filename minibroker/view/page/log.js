// The log of a replica, taken apart: segments to scale, how an offset or a time is found in them, and batches byte by byte.

import { html, signal } from "./vendor.js";
import { state } from "./feed.js";
import { asked, Asking, Begin, beginOf, Failed, useAnswer, withWords } from "./asking.js";
import { bytes, count, many, part, placeOf, shown } from "./text.js";

const BYTES_MAX = 12; // of a field, before somebody looks at it
const turn = signal(0);
const looked = signal(0); // which field

export const query = (now, [topic, place = ""]) =>
  `sums=1&${parseInt(place) < now?.cells[topic]?.length ? `parts=${part(placeOf(topic, parseInt(place)))}` : "topics="}`;

export function View({ path: [topic, place = ""] }) {
  const [number, broker] = place.split("@");
  const { offset, time, segment, at, record, format } = asked();
  const api = (what, words) => withWords(`api/log/${part(topic)}/${part(number)}${what}`, { broker, ...words });
  const own = `#/log/${part(topic)}/${place}`;
  const { answer: log, why } = useAnswer(api("", {}), turn.value);
  const found = useAnswer((offset || time) && api("/lookup", beginOf({ offset, time })), turn.value);
  const steps = found.answer?.steps ?? [];
  const stepOf = (kind) => steps.findLast((each) => each.kind === kind);
  const base = +(segment ?? stepOf("segment")?.base_offset ?? log?.segments.at(-1).base_offset);
  const of = log?.segments.find((each) => each.base_offset === base);
  const { answer: entries } = useAnswer(of && api("", { segment: String(base) }), turn.value);
  const begin = at ?? stepOf("batch")?.position ?? 0;
  const batch = useAnswer(
    of?.size_bytes && api("/bytes", { ...(offset ? { offset } : { segment: `${base}`, at: `${begin}` }), record, format, compare: 1 }),
    turn.value,
  );
  const replicas = state.value.rows[placeOf(topic, number)]?.[6] ?? [];
  const to = (words) => withWords(own, words);
  return html`
    <p><a class="back" href=${`#/topic/${part(topic)}?p=${part(number)}`}>records of <bdi>${shown(placeOf(topic, number))}</bdi></a></p>
    <section class="panel" aria-label="Log">
      <header class="tools">
        <h2><bdi>${shown(placeOf(topic, number))}</bdi>${log ? ` on b${log.broker}` : ""}</h2>
        ${replicas.map((id) => html`<a href=${`#/log/${part(topic)}/${part(number)}@${id}`} aria-current=${id === log?.broker}>b${id}</a>`)}
        <button type="button" onClick=${() => (turn.value += 1)}>look again</button>
      </header>
      <${Failed} why=${why} />
      ${log ? html`<${Log} log=${log} base=${base} to=${to} />` : null}
      <${Asking} place=${own}>
        <${Begin} label="find offset" />
        <button>find</button>
      <//>
      <${Failed} why=${found.why} />
      ${steps.length ? html`<ol class="found">${steps.map((each) => html`<li>${each.sentence}</li>`)}</ol>` : null}
      ${of && entries ? html`<${Segment} of=${of} entries=${entries} scan=${stepOf("scan")} batch=${batch.answer} to=${to} />` : null}
    </section>
    <${Failed} why=${batch.why} />
    ${batch.answer ? html`<${Bytes} key=${JSON.stringify(asked())} batch=${batch.answer} to=${to} log=${log} />` : null}
  `;
}

// From left to right what lies from byte to byte.
function Strip({ label, total, marks }) {
  return html`<svg class="strip" viewBox="0 0 1000 26" preserveAspectRatio="none" role="group" aria-label=${label}>
    ${marks.map(([kind, from, end, words, href]) => {
      const x = (1000 * from) / total;
      const mark = html`<rect class=${kind} x=${x} width=${Math.max((1000 * end) / total - x, 2)}><title>${words}</title></rect>`;
      return href ? html`<a href=${href} aria-label=${words}>${mark}</a>` : mark;
    })}
  </svg>`;
}

function Log({ log, base, to }) {
  let sum = 0;
  const marks = log.segments.map((each) => {
    const size = `${many(each.end_offset - each.base_offset, "offset")}, ${bytes(each.size_bytes)}`;
    const words = `segment ${each.base_offset}: ${size}${each.is_active ? ", active" : ""}`;
    const from = sum;
    sum += each.size_bytes;
    return [each.base_offset === base ? "part now" : "part", from, sum, words, to({ segment: String(each.base_offset) })];
  });
  return html`<p class="facts">
      ${Object.entries(log)
        .filter(([, each]) => typeof each === "number")
        .map(([name, each]) => html`<span>${name.replaceAll("_", " ")} <b>${count(each)}</b></span>`)}
      <span>epochs <b>${log.epochs.map((each) => `${each.epoch}@${each.start_offset}`).join(" ")}</b></span>
      ${log.open_transactions.map((each) => html`<span class="warn">producer ${each.producer_id} open since ${each.first_offset}</span>`)}
    </p>
    <h3>${many(log.segments.length, "segment")}, ${bytes(log.size_bytes)}</h3>
    ${log.left_out.segments ? html`<p class="more">and ${count(log.left_out.segments)} before them</p>` : null}
    <${Strip} label="Segments, to scale" total=${sum || 1} marks=${marks} />`;
}

function Segment({ of, entries, scan, batch, to }) {
  const { index, timeindex } = entries;
  const at = (position) => to({ segment: String(of.base_offset), at: String(position) });
  const near = (offset) => index.findLast((each) => each.offset <= offset)?.position ?? 0;
  const marks = [
    ["part", 0, of.size_bytes, "the segment"],
    ...index.map(({ offset, position }) => ["tick", position, 0, `index: ${offset} at byte ${position}`]),
    ...timeindex.map(({ timestamp, offset }) => ["tick late", near(offset), 0, `time index: up to ${offset} not above ${timestamp}`]),
  ];
  if (scan?.to) marks.push(["scan", scan.from, scan.to, "looked at, and passed over"]);
  if (batch?.segment === of.base_offset) marks.push(["now", batch.position, batch.next_position ?? of.size_bytes, "the batch below"]);
  return html`<h3>
      segment ${of.base_offset}, ${bytes(of.size_bytes)}
      <small class="dim"> above: entries of its index, below: of its time index</small>
    </h3>
    <${Strip} label="The segment, to scale" total=${of.size_bytes || 1} marks=${marks} />
    <details>
      <summary>entries of the index: ${of.index_entries}, of the time index: ${of.timeindex_entries}</summary>
      ${entries.index_step > 1 ? html`<p class="more">each ${entries.index_step}th</p>` : null}
      <p class="facts">${index.map((each) => html`<a href=${at(each.position)}>${each.offset} at byte ${count(each.position)}</a> `)}</p>
      <p class="facts">${timeindex.map((each) => html`<span>${each.timestamp} up to ${each.offset}</span> `)}</p>
    </details>`;
}

const spaced = (hex, most = Infinity) => hex.slice(0, 2 * most).replace(/..(?=.)/g, "$& ") + (hex.length > 2 * most ? " …" : "");
const nameOf = (field) => field.path.replace(/^batch\[0\]\./, "");
const utf8 = (hex) => new TextDecoder().decode(Uint8Array.from(hex.match(/../g), (pair) => `0x${pair}`));
const textOf = ({ type, value }) => shown(/Bytes/.test(type) && value ? utf8(value) : value, 300);

function Bytes({ batch, to, log }) {
  const { fields, sent, formats, segment, position, next_position: next } = batch;
  const chosen = fields[looked.value] ?? fields[0];
  const crc = fields.find(({ covers, inside }) => covers && inside === chosen.inside && covers[0] <= chosen.from && chosen.to <= covers[1]);
  const [from, end] = chosen.covers ?? [];
  const isChanged = chosen.set_by || sent.changed?.some((each) => each.path === chosen.path);
  const origin = isChanged ? "the broker sets it" : sent.in_place ? "as the producer sent it" : "";
  const step = (event) => {
    const goal = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    if (goal) event.target[goal]?.focus();
  };
  const own = { segment: String(segment), at: String(position) };
  const first = fields[0].value;
  return html`<section class="panel" aria-label="Bytes">
    <header class="tools">
      <h2>
        ${many(batch.size_bytes, "byte")} at ${count(position)} of segment ${segment}
        ${batch.format === undefined ? "" : ` as v${batch.format}`}
      </h2>
      ${first > log?.start_offset ? html`<a href=${to({ offset: String(first - 1) })}>the batch before</a>` : null}
      ${next === null ? null : html`<a href=${to({ ...own, at: String(next) })}>the next one</a>`}
    </header>
    <${Failed} why=${batch.error} />
    <div class="bytes" onKeyDown=${step}>
      ${fields.map((field, at) => {
        const look = () => (looked.value = at);
        const rest = /\[(\d+)\.\.\d+\]$/.exec(field.path);
        const isCovered = field.from >= from && field.to <= end && field.inside === chosen.inside;
        return html`<button
          type="button"
          key=${at}
          class=${`field ${field.set_by ? "changed" : ""} ${isCovered ? "covered" : ""} ${field.inside ? "inside" : ""}`}
          aria-pressed=${String(field === chosen)}
          aria-describedby="field"
          tabindex=${field === chosen ? 0 : -1}
          onMouseEnter=${look}
          onFocus=${look}
          onClick=${() => rest && (location.hash = to({ ...own, record: rest[1] }))}
        >
          <code>${spaced(field.hex, BYTES_MAX)}</code><small>${shown(nameOf(field))}</small>
        </button>`;
      })}
    </div>
    <div class="detail" id="field">
      <h3>${shown(chosen.path)} <code>${chosen.type}</code> = <bdi>${textOf(chosen)}</bdi></h3>
      <p>${shown(chosen.meaning ?? "", 300)} ${shown(chosen.comment, 300)}</p>
      <p class="facts">
        <span>byte ${chosen.from} to ${chosen.to - 1} ${chosen.inside ? `of ${chosen.inside}` : ""}</span>
        <span>${batch.format === undefined ? origin : ""}</span>
        <span>${
          chosen.covers
            ? `the CRC covers byte ${from} to ${end - 1}`
            : `${crc ? "" : chosen.inside ? "packed " : "not "}under the CRC`
        }</span>
      </p>
      <code>${spaced(chosen.hex)}${chosen.is_cut ? " …" : ""}</code>
    </div>
    <h3>What the producer sent</h3>
    <p>${shown(sent.why ?? sent.summary, 300)}</p>
    ${(sent.changed ?? []).map(
      (each) => html`<p class="facts">
        <span>${shown(nameOf(each))}</span><code>${spaced(each.sent?.hex ?? "")}</code> → <code>${spaced(each.stored?.hex ?? "")}</code>
      </p>`,
    )}
    <h3>The same records in</h3>
    <p class="facts">
      <a href=${to(own)}>as stored</a>
      ${formats.map(({ format, codec, bytes: size }) => {
        const words = `v${format} ${codec === "none" ? "" : codec} ${many(size, "byte")}`;
        return codec === "none" ? html`<a href=${to({ ...own, format: String(format) })}>${words}</a>` : html`<span>${words}</span>`;
      })}
      ${batch.why}
    </p>
  </section>`;
}
