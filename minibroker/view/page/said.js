// What has happened, the newest in front: sentences that say why, and how many more there were.

import { computed, html, signal, useEffect, useRef } from "./vendor.js";
import { isQuiet, said } from "./feed.js";
import { count, many, shown, time } from "./text.js";

const ROUTINE = new Set([
  "append",
  "high_watermark",
  "last_stable_offset",
  "marker",
  "fetch",
  "produce",
  "ack",
  "commit",
  "metadata",
  "step",
]);
const BAD = new Set(["loss", "truncate", "uncleanable", "denied", "fault"]);
const SHOWN_MAX = 120;

export const withRoutine = signal(localStorage.getItem("routine") === "1");
export const isPaused = signal(false);
let held = []; // what is shown while it is paused

export function setRoutine(on) {
  withRoutine.value = on;
  localStorage.setItem("routine", on ? "1" : "0");
}

export function pause(on = !isPaused.value) {
  held = said.value;
  isPaused.value = on;
}

const rows = computed(() => {
  const found = [];
  let hidden = {};
  const flush = () => {
    const counts = Object.entries(hidden);
    if (counts.length) found.push({ counts, key: `hidden ${found.length}` });
    hidden = {};
  };
  for (const each of isPaused.value ? held : said.value) {
    if (each.leftOut) {
      for (const [kind, number] of Object.entries(each.leftOut)) hidden[kind] = (hidden[kind] ?? 0) + number;
    } else if (ROUTINE.has(each.kind) && !withRoutine.value) {
      hidden[each.kind] = (hidden[each.kind] ?? 0) + 1;
    } else {
      flush();
      found.push(each);
      if (found.length < SHOWN_MAX) continue;
      return [...found, { isEnd: true, key: "end" }];
    }
  }
  flush();
  return found;
});

export function Said() {
  const waiting = isPaused.value ? said.value.findIndex((each) => each === held[0]) : 0;
  return html`<section class="said" aria-labelledby="said-title">
    <header>
      <h2 id="said-title">What happened</h2>
      <label class="check" title="Appends, high watermarks, fetches and answers, of the partitions that are shown">
        <input type="checkbox" checked=${withRoutine.value} onChange=${(event) => setRoutine(event.target.checked)} />
        routine
      </label>
      <button type="button" aria-pressed=${String(isPaused.value)} onClick=${() => pause()} title="Space">
        ${isPaused.value ? "go on" : "pause"}
      </button>
    </header>
    ${isPaused.value && waiting ? html`<p class="more">${waiting < 0 ? "many" : many(waiting, "line")} meanwhile</p>` : null}
    ${
      isQuiet.value
        ? html`<p class="more">So much happens that routine events are neither told nor counted now.</p>`
        : null
    }
    ${
      rows.value.length
        ? html`<ol>
            ${rows.value.map((each) => {
              if (each.isEnd) return html`<li key=${each.key} class="counts">older ones are not shown</li>`;
              return each.counts
                ? html`<${Counts} key=${each.key} counts=${each.counts} />`
                : html`<${Sentence} key=${each.key} event=${each} />`;
            })}
          </ol>`
        : html`<p class="more">Nothing yet, since this page was opened.</p>`
    }
    <${Spoken} />
  </section>`;
}

function Sentence({ event }) {
  return html`<li class=${`event ${BAD.has(event.kind) ? "grave" : ROUTINE.has(event.kind) ? "dim" : ""}`}>
    <time>${time(event.at_ms)}</time><span class="kind">${event.kind.replaceAll("_", " ")}</span>
    <p>${shown(event.sentence, 600)}</p>
  </li>`;
}

function Counts({ counts }) {
  const sum = counts.reduce((total, [, number]) => total + number, 0);
  const kinds = counts.map(([kind, number]) => `${number} ${kind.replaceAll("_", " ")}`).join(", ");
  if (counts.every(([kind]) => ROUTINE.has(kind)))
    return html`<li class="counts routine" title=${kinds}>${`+ ${count(sum)} routine`}</li>`;
  return html`<li class="counts" title=${kinds}>and ${many(sum, "more event")}: ${kinds}</li>`;
}

// At most a sentence a second for whoever listens.
function Spoken() {
  const place = useRef(null);
  useEffect(() => {
    const timer = setInterval(() => {
      const newest = said.value.find((each) => each.sentence && !ROUTINE.has(each.kind));
      if (place.current && newest && place.current.textContent !== newest.sentence)
        place.current.textContent = shown(newest.sentence, 300);
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<p class="spoken" aria-live="polite" ref=${place}></p>`;
}
