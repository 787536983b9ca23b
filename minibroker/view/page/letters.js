// Messages between brokers that wait at gates (docs/cluster.md): each is a button that lets it pass.

import { html } from "./vendor.js";
import { verb } from "./commands.js";
import { Do } from "./controls.js";
import { count, many, shown } from "./text.js";

// By their place: whoever lets one pass is at the next one then.
export function Letters({ letters, id }) {
  return html`<ul class="letters" aria-label="Messages that wait at gates">
    ${letters.map(([, row], at) => html`<li key=${at}><${Letter} row=${row} id=${id} /></li>`)}
  </ul>`;
}

const NAMES = {
  FetchRequest: "fetch",
  FetchResponse: "answer",
  AlterPartitionRequest: "ISR proposal",
  WriteTxnMarkersRequest: "marker",
};

function Letter({ row, id }) {
  const [gate, at, source, target, name, about] = row;
  const each = about.find((place) => !id || place.partition === id);
  const way = source === "" ? "" : `${end(source)} → ${end(target)}`;
  const what = each ? letterWords(name, each) : "";
  const more = about.length > 1 ? ` (and ${many(about.length - 1, "partition")})` : "";
  const ahead = at ? `, after ${many(at, "other")}` : "";
  const said = NAMES[name] ?? shown(name, 40);
  const text = `${way} ${said} ${what}`.trim();
  const place = at ? html`<small> ${at + 1}.</small>` : null;
  const label = html`<span class="envelope" aria-hidden="true">✉</span><b>${way}</b> ${said} ${what}${more}${place}`;
  return html`<${Do}
    kind="letter"
    command=${verb("step", at ? { kind: gate, count: at + 1 } : { kind: gate })}
    label=${label}
    words=${`Let pass: ${text}${ahead}`}
  />`;
}

const end = (who) => (who === "controller" ? "controller" : `b${who}`);

function letterWords(name, each) {
  if (name === "FetchRequest") return `from ${count(each.offset)}${each.epoch >= 0 ? `, epoch ${each.epoch}` : ""}`;
  if (name === "FetchResponse") {
    const [a, b] = each.offsets ?? [];
    const records = a === undefined ? "no records" : a === b ? `record ${a}` : `records ${a}–${b}`;
    return `${records}, HW ${each.high_watermark}${each.error ? `, error ${each.error}` : ""}`;
  }
  if (name === "AlterPartitionRequest") return `ISR {${each.isr.join(",")}}`;
  if (name === "WriteTxnMarkersRequest") return `${each.outcome} of producer ${each.producer_id}`;
  return "";
}
