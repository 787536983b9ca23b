// A topic of the place Topics: its records, from where the address says, those that fit, or as they come; and writing some.

import { html, signal, useEffect, useState } from "./vendor.js";
import { mayChange, state } from "./feed.js";
import { isCluster, literal, quoted } from "./commands.js";
import { Do } from "./controls.js";
import { asked, Asking, Begin, beginOf, Failed, Field, useAnswer, withWords } from "./asking.js";
import { bytes, count, many, part, shown, time } from "./text.js";

const LIMIT = 50;
const PLACES_MAX = 16; // partitions whose ends are told
const KEPT_MAX = 200; // of what comes live
const HITS_MAX = 500;
const DUMPED_MAX = 4096;
const turn = signal(0); // of asking for the same

export const query = () => "sums=1&topics=";

const placeOf = (topic) => `#/topic/${part(topic)}`;
const apiOf = (topic, what, words) => withWords(`api/topics/${part(topic)}/${what}`, words);

export function View({ path: [topic] }) {
  const row = state.value.topics[topic];
  const name = html`<bdi>${shown(topic, 120)}</bdi>`;
  if (!row) return html`<p class="empty-place">There is no topic ${name} here. <a href="#/topics">All topics</a></p>`;
  const { open, ...words } = asked();
  const Shown = words.live || words.q ? Stream : Records;
  return html`
    <p><a class="back" href="#/topics">all topics</a></p>
    <section class="panel" aria-label="Which records">
      <header class="tools">
        <h2>${name}</h2>
        <a href=${`#/cluster/${part(topic)}`}>${many(row[1], "partition")}, ${many(row[2], "replica")} each</a>
        <a href=${`#/log/${part(topic)}/${words.p || 0}`}>log of p${words.p || 0}</a>
      </header>
      <${Asking} place=${placeOf(topic)}>
        <${Field} name="p" label="partition" kind="amount" type="number" placeholder="all" max=${row[1] - 1} />
        <${Begin} label="from offset" placeholder="newest" />
        <label class="check"><input type="checkbox" name="committed" value="1" defaultChecked=${words.committed} />committed only</label>
        <label
          ><span class="what">only with</span
          ><select name="way">
            ${["text", "key", "path", "header"].map((each) => html`<option selected=${words.way === each}>${each}</option>`)}
          </select></label
        >
        <${Field} name="q" type="search" kind="filter" placeholder="$.id == 7" aria-label="Search for" />
        <button onClick=${() => (turn.value += 1)}>show</button>
        <button name="live" value="1">live</button>
      <//>
    </section>
    <${Shown} key=${JSON.stringify([topic, words])} topic=${topic} words=${words} open=${open} />
    ${mayChange.value ? html`<${Write} topic=${topic} />` : null}
  `;
}

// An offset belongs to one partition: the first one, if none is named.
const partitionOf = ({ p, offset, committed }) => ({ partition: p || (offset && "0"), isolation: committed && "read_committed" });

function Records({ topic, words, open }) {
  const { answer, why } = useAnswer(apiOf(topic, "records", { ...partitionOf(words), ...beginOf(words), limit: LIMIT }), turn.value);
  const { records = [], partitions = [] } = answer ?? {};
  return html`<section class="panel" aria-label="Records">
    <header class="tools"><h2>${many(records.length, "record")}</h2>${answer?.order}</header>
    <${Failed} why=${why} />
    <${Table} topic=${topic} rows=${records} open=${open} />
    ${partitions.slice(0, PLACES_MAX).map((each) => html`<${Ends} key=${each.partition} topic=${topic} found=${each} words=${words} />`)}
    ${answer?.left_out ? html`<p class="more">${many(answer.left_out, "record")} read that are not among these</p>` : null}
    ${partitions.length > PLACES_MAX ? html`<p class="more">and ${many(partitions.length - PLACES_MAX, "more partition")}</p>` : null}
  </section>`;
}

const range = (from, end) => (from < end ? `${count(from)}–${count(end - 1)}` : "nothing");
const counts = (table) => Object.entries(table ?? {}).map(([why, number]) => `${count(number)} ${why}`);

// What there is of a partition, what of it is shown, and the way on.
function Ends({ topic, found, words }) {
  const { partition: p, from, next_offset: next, start_offset: start } = found;
  const end = words.committed ? found.last_stable_offset : found.high_watermark;
  const at = (offset) => withWords(placeOf(topic), { ...words, p: `${p}`, offset: `${offset}`, time: "" });
  const to = (offset, label) => html`<a href=${at(offset)}>${label}</a>`;
  const notes = [
    found.error,
    ...found.damaged.map((each) => `damaged: ${JSON.stringify(each)}`),
    found.gaps.length && many(found.gaps.length, "gap"),
    ...counts(found.left_out),
  ];
  return html`<p class="facts">
    <span><b>p${p}</b> ${range(from, next)} of ${range(start, end)}, on b${found.broker}; ended: ${found.ended}</span>
    ${from > start ? to(Math.max(start, from - LIMIT), "older") : null} ${next < end ? to(next, "newer") : null}
    ${notes.filter(Boolean).map((note) => html`<span class="warn">${shown(note, 200)}</span>`)}
  </p>`;
}

function Table({ topic, rows, open }) {
  if (!rows.length) return null;
  return html`<div class="scroll">
    <table class="records">
      <thead>
        <tr>
          ${["p", "offset", "time", "key", "value", "size", "batch", "decoded as"].map((each) => html`<th scope="col">${each}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map((row) => {
          const id = `${row.partition}-${row.offset}`;
          return [
            html`<${Row} key=${id} row=${row} id=${id} isOpen=${id === open} />`,
            id === open ? html`<tr key="open"><td colspan="8"><${Opened} topic=${topic} row=${row} /></td></tr>` : null,
          ];
        })}
      </tbody>
    </table>
  </div>`;
}

const nameOf = (face) => (face ? `${face.as} ${face.schema_id ?? ""}` : "null").trim();
const reasons = (face) => Object.entries(face?.not ?? {}).map(([name, why]) => `no ${name}: ${why}`);

function Row({ row, id, isOpen }) {
  const { batch } = row;
  const flip = () => (location.hash = withWords(location.hash.split("?")[0], { ...asked(), open: !isOpen && id }));
  const cell = (face) => html`<td><bdi class=${face ? "" : "dim"}>${face ? shown(face.text ?? face.hex, 160) : "null"}</bdi></td>`;
  return html`<tr class=${batch.transaction === "aborted" ? "dim" : ""}>
    <td>${row.partition}</td>
    <th scope="row"><button type="button" class="small" aria-expanded=${String(isOpen)} onClick=${flip}>${count(row.offset)}</button></th>
    <td title=${stampOf(row)}>${time(row.timestamp)}</td>
    ${row.control ? html`<td></td><td>${shown(row.text, 160)}</td>` : [cell(row.key), cell(row.value)]}
    <td>${bytes(row.size_bytes)}</td>
    <td>${batch.base_offset}+${batch.records} ${batch.codec === "none" ? "" : batch.codec} ${batch.transaction}</td>
    <td title=${reasons(row.value).join("\n")}>${row.control ?? nameOf(row.value)}</td>
  </tr>`;
}

const stampOf = (row) => `${row.timestamp_type ?? "no"} time ${new Date(row.timestamp).toJSON()}, ${row.timestamp}`;

// One record: all of it, whatever it is.
function Opened({ topic, row }) {
  const [isWhole, setWhole] = useState(false);
  const { partition, offset, batch } = row;
  const { answer, why } = useAnswer(isWhole && apiOf(topic, "records", { partition: `${partition}`, offset: `${offset}`, whole: 1 }));
  const { key, value, headers = [], headers_left_out: more } = answer?.records[0] ?? row;
  const faces = row.control ? [] : [["key", key], ["value", value], ...headers.map((each) => [`header ${each.name}`, each.value])];
  return html`<div class="opened">
    <p class="facts">
      <span>${stampOf(row)}</span>
      ${Object.entries(batch).map(([name, each]) => html`<span>${name.replaceAll("_", " ")} <b>${each}</b></span>`)}
      <a href=${`#/log/${part(topic)}/${partition}?offset=${offset}`}>its bytes in the log</a>
    </p>
    ${faces.map(([name, face], at) => html`<${Face} key=${at} name=${name} face=${face} />`)}
    ${more ? html`<p class="more">and ${many(more, "more header")}</p>` : null}
    <${Failed} why=${why} />
    ${
      !isWhole && (more || faces.some(([, face]) => face?.is_cut))
        ? html`<button type="button" onClick=${() => setWhole(true)}>all of it</button>`
        : null
    }
  </div>`;
}

function Face({ name, face }) {
  const heading = (words) => html`<h3>${shown(name, 300)} <small class="dim">${words}</small></h3>`;
  if (!face) return heading("null");
  const { text } = face;
  const isText = text !== undefined;
  const lines = isText && text.split("\n").map((line) => shown(line, Infinity));
  return html`${heading(`${nameOf(face)}, ${many(face.size_bytes, "byte")}${face.is_cut ? ", not all of it" : ""}`)}
    ${isText ? html`<pre tabindex="0">${lines.join("\n")}</pre>` : null}
    ${
      face.as === "internal"
        ? null
        : html`<details open=${!isText}>
            <summary>hex</summary>
            <pre tabindex="0">${dump(face)}</pre>
          </details>`
    }
    ${reasons(face).map((why) => html`<p class="more">${shown(why, 200)}</p>`)}`;
}

// What is text is the same bytes in UTF-8; what a registry knows has 0 and the number of its schema in front.
function dump({ text, hex, schema_id: schema }) {
  const front = schema ? schema.toString(16).padStart(10, "0") : "";
  const pairOf = (byte) => byte.toString(16).padStart(2, "0");
  const body = hex ?? Array.from(new TextEncoder().encode(text.slice(0, DUMPED_MAX)), pairOf).join("");
  return (front + body).slice(0, 2 * DUMPED_MAX).replace(/.{1,32}/g, (row, at) => {
    const signs = row.replace(/../g, (pair) => (/[2-6].|7[^f]/.test(pair) ? String.fromCharCode(`0x${pair}`) : "."));
    return `${String(at / 2).padStart(5)}  ${row.replace(/../g, "$& ").padEnd(50)}${signs}\n`;
  });
}

// What is searched for, and what comes from now on. Not by EventSource: it hides why it is refused, and begins anew.
async function listen(path, on, signal) {
  const answer = await fetch(path, { signal });
  if (!answer.ok) throw new Error((await answer.json()).error);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", got; !(got = await reader.read()).done; ) {
    const events = (rest + got.value).split("\n\n");
    rest = events.pop();
    for (const each of events) {
      const [name, data] = each.split("\ndata: ");
      if (data) on(name.slice("event: ".length), JSON.parse(data));
    }
  }
}

function Stream({ topic, words, open }) {
  const [now, set] = useState({ rows: [] });
  const { live, way, q } = words;
  const begin = live ? {} : { ...beginOf(words), limit: HITS_MAX, seconds: 600 };
  const path = apiOf(topic, live ? "tail" : "search", { ...partitionOf(words), ...begin, ...(q && { [way]: q }) });
  useEffect(() => {
    const control = new AbortController();
    const add = (more) => set((was) => (was.control === control ? { ...was, ...more(was) } : was));
    const take = (name, found) =>
      add(({ rows, sum, left }) => {
        if (name === "hit") return { rows: [...rows, found], sum: sum + 1 };
        if (name !== "records") return found.error ? { why: found.error } : name === "begin" ? {} : { done: found };
        left = { ...left };
        for (const [why, number] of Object.entries(found.left_out)) left[why] = (left[why] ?? 0) + number;
        return { rows: [...found.records.reverse(), ...rows].slice(0, KEPT_MAX), sum: sum + found.records.length, left };
      });
    set({ rows: [], sum: 0, control, goes: true });
    listen(path, take, control.signal)
      .catch((failure) => add(() => (control.signal.aborted ? {} : { why: failure.message })))
      .finally(() => add(() => ({ goes: false })));
    return () => control.abort();
  }, [path, turn.value]);
  const { rows, sum = 0, left, done, goes } = now;
  const places = done?.partitions ?? [];
  const all = (name) => places.reduce((total, each) => total + each[name] - each.from, 0);
  const [label, act] = goes ? ["stop", () => now.control.abort()] : ["again", () => (turn.value += 1)];
  return html`<section class="panel" aria-label=${live ? "Live" : "Search"}>
    <header class="tools">
      <h2>${many(sum, live ? "record" : "hit")}</h2>
      ${live ? `live, the newest on top${sum > rows.length ? `, ${rows.length} are kept` : ""}` : null}
      ${places.length ? html`<progress aria-label="Looked through" max=${all("end") || 1} value=${all("position")} />` : null}
      <span role="status">${goes ? "" : done?.why ? `ended: ${done.why}` : "stopped"}</span>
      <button type="button" onClick=${act}>${label}</button>
    </header>
    <${Failed} why=${now.why} />
    <p class="warn">${counts({ ...left, ...done?.unread, ...(done?.damaged && { damaged: done.damaged }) }).join(", ")}</p>
    ${
      places.length
        ? html`<p class="more">
            ${many(done.records, "record")}, ${bytes(done.bytes)} looked through in ${done.seconds} s: ${places
              .slice(0, PLACES_MAX)
              .map((each) => `p${each.partition} ${range(each.from, each.position)} of ${range(each.from, each.end)} ${each.error ?? ""}`)
              .join("; ")}
          </p>`
        : null
    }
    <${Table} topic=${topic} rows=${rows} open=${open} />
  </section>`;
}

// Writing

const draft = signal({});

export function writeCommand(topic, { partition, key, value = "", isNull, headers = "" }) {
  const pairs = headers.split("\n").filter(Boolean).map((line) => [...line.split(/=(.*)/s), ""].slice(0, 2));
  const named = {
    ...(key && { key }),
    ...(partition && { partition: +partition }),
    ...(pairs.length && { headers: Object.fromEntries(pairs) }),
  };
  const body = { value: isNull ? null : value, ...named };
  const words = Object.entries(named).map(([name, each]) => `, ${name}=${literal(each)}`);
  const line = { key: key || null, payload: body.value, headers: pairs.flat() };
  return {
    method: "POST",
    path: `api/topics/${part(topic)}/records`,
    body,
    python: `${isCluster() ? "cluster" : "broker"}.produce(${literal(topic)}, ${isNull ? "None" : literal(value)}${words.join("")})`,
    shell: `minibroker produce -t ${topic} ${partition ? `-p ${partition} ` : ""}-J <<< ${quoted(JSON.stringify(line))}`,
  };
}

function Write({ topic }) {
  const [said, setSaid] = useState("");
  const done = ({ records: [row] }) => {
    setSaid(`written to p${row.partition} at offset ${row.offset}`);
    if (!asked().live) turn.value += 1;
  };
  const edit = (event) => (draft.value = Object.fromEntries(new FormData(event.currentTarget)));
  return html`<section class="panel" aria-label="Write a record">
    <form class="wishes" onInput=${edit} onSubmit=${(event) => event.preventDefault()}>
      <h2>Write a record</h2>
      <${Field} name="partition" label="partition" kind="amount" type="number" placeholder="any" />
      <${Field} name="key" label="key" kind="text" placeholder="null" />
      <textarea name="value" aria-label="Value" placeholder="value"></textarea>
      <label class="check"><input type="checkbox" name="isNull" />null</label>
      <textarea name="headers" aria-label="Headers" placeholder="headers, a line each: name=value"></textarea>
      <${Do} command=${writeCommand(topic, draft.value)} label="write" onDone=${done} />
      <span role="status">${said}</span>
    </form>
  </section>`;
}
