// The state of the brokers as it is now, kept up to date by the frames of /api/events (docs/http.md).
//
// Here alone the page speaks with its broker. What must hold: another boot is another state, nothing of the one before
// stays; what is left out is counted and shown.

import { batch, computed, signal } from "./vendor.js";
import { reduce } from "./reduce.js";

const meta = (name, root = document) => root.querySelector(`meta[name="minibroker-${name}"]`)?.content ?? "";

export const state = signal(null); // null: nothing has come yet
export const link = signal({ how: "connecting", why: "" }); // connecting, live, lost, full
export const said = signal([]); // the newest in front: events, and counts of what is not told: { leftOut: { kind: count } }
export const isQuiet = signal(false);
export const whyNot = signal(meta("why-not")); // why nothing can be changed; "" if it can
export const ownBroker = meta("broker"); // this page comes from it
export const rate = signal(null); // records and bytes a second, and requests
export const mayChange = computed(() => whyNot.value === "");

const SAID_MAX = 400;
const RETRY_MS = [250, 500, 1000, 2000];
let token = meta("token");
let query = "";
let source = null;
let lastId = "";
let tries = 0;
let timer = 0;
let before = null; // of the sums, a second ago

// Look at something else: at these rows, groups, ...
export function look(wanted) {
  if (wanted === query && source) return;
  query = wanted;
  connect();
}

function connect() {
  clearTimeout(timer);
  source?.close();
  const since = lastId ? `since=${encodeURIComponent(lastId)}` : "";
  const own = new EventSource(`api/events?${[query, since].filter(Boolean).join("&")}`);
  source = own;
  const hear = (take) => (event) => {
    if (source !== own) return;
    tries = 0;
    lastId = event.lastEventId;
    batch(() => take(JSON.parse(event.data)));
  };
  own.addEventListener("state", hear(begin));
  own.addEventListener("frame", hear(take));
  own.onerror = () => {
    if (source !== own) return;
    own.close();
    source = null;
    ask();
  };
}

// Nobody looks at a page that is hidden for long; when it is seen again it goes on.
const HIDDEN_MS = 60_000;
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) {
    if (!source) connect();
  } else {
    timer = setTimeout(() => {
      source?.close();
      source = null;
    }, HIDDEN_MS);
  }
});

// Why has it ended? A stream that is refused says so to whoever asks again.
async function ask() {
  const wait = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
  tries += 1;
  let how = "lost";
  let why = "";
  try {
    const control = new AbortController();
    const answer = await fetch(`api/events?${query}`, { signal: control.signal });
    if (!answer.ok) {
      how = answer.status === 503 ? "full" : "lost";
      why = (await answer.json()).error ?? "";
    }
    control.abort();
  } catch {
    // nobody answers
  }
  if (source || document.hidden) return;
  if (how !== "lost" || tries > 1 || why) link.value = { how, why };
  timer = setTimeout(connect, how === "full" ? 3000 : wait);
}

function begin(found) {
  const isOther = state.value !== null && state.value.boot !== found.boot;
  state.value = found;
  if (isOther) {
    said.value = [];
    before = null;
    rate.value = null;
    renew();
  }
  isLive();
  measure(found);
}

function take(frame) {
  state.value = reduce(state.value, frame);
  isQuiet.value = frame.is_quiet === true;
  if (frame.said || frame.left_out) tell(frame.said ?? [], frame.left_out);
  isLive();
  measure(state.value);
}

function isLive() {
  if (link.value.how !== "live") link.value = { how: "live", why: "" };
}

function tell(events, leftOut) {
  let now = said.value;
  if (leftOut) {
    const [first, ...others] = now;
    const counts = { ...(first?.leftOut ?? {}) };
    for (const [kind, number] of Object.entries(leftOut)) counts[kind] = (counts[kind] ?? 0) + number;
    now = [{ leftOut: counts, key: first?.leftOut ? first.key : `left ${frames}` }, ...(first?.leftOut ? others : now)];
  }
  frames += 1;
  const told = events.map((event, index) => ({ ...event, key: `${frames} ${index}` })).reverse();
  said.value = [...told, ...now].slice(0, SAID_MAX);
}
let frames = 0;

// Sums come once a second: what is written in a second is the difference.
function measure(now) {
  if (before && now.steady_ms - before.at < 950) return;
  const own = Object.entries(now.sums ?? {}).filter(([topic]) => !topic.startsWith("__"));
  const ends = own.reduce((sum, [, row]) => sum + row[1], 0);
  const totals = Object.values(now.totals);
  const requests = totals.reduce((sum, row) => sum + row[1], 0);
  const sent = totals.reduce((sum, row) => sum + row[2], 0);
  const at = now.steady_ms;
  if (before && before.boot === now.boot) {
    const per = (number, was) => Math.max(0, Math.round(((number - was) * 1000) / (at - before.at)));
    rate.value = {
      records: per(ends, before.ends),
      requests: per(requests, before.requests),
      sent: per(sent, before.sent),
    };
  }
  before = { at, boot: now.boot, ends, requests, sent };
}

// The broker has been started anew: its page has another word, and may be another page.
async function renew() {
  try {
    const answer = await fetch("./", { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    token = meta("token", page);
    whyNot.value = meta("why-not", page);
  } catch {
    // it has gone again
  }
}

// Ask for a change; what is answered, or an error with the broker's words.
export async function send(method, path, body) {
  const answer = await attempt(method, path, body);
  if (answer.status !== 403) return result(answer);
  await renew();
  return result(await attempt(method, path, body));
}

async function attempt(method, path, body) {
  const headers = { "X-Minibroker": token };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
}

async function result(answer) {
  const text = await answer.text();
  let found = text;
  try {
    found = JSON.parse(text);
  } catch {
    // plain words
  }
  if (!answer.ok) throw new Error(found?.error ?? (text || answer.statusText));
  return found;
}
