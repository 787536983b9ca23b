// What can be done to a cluster, and how the same is said in Python, in a shell and by HTTP.
//
//   verb("kill", { broker: 1 })       cluster.kill(1)    minibroker cluster kill 1    POST /cluster/kill {"broker": 1}
//
// The names and their order are those of minibroker/cluster/verbs.py; a test compares them.

import { batch, signal } from "./vendor.js";
import { send, state } from "./feed.js";

// Verb -> what it takes in this order; * takes what is left, -- only by its name.
export const VERBS = {
  kill: ["broker", "--lossy"],
  stop: ["broker"],
  start: ["broker"],
  pause: ["broker"],
  resume: ["broker"],
  "fill-disk": ["broker"],
  "slow-disk": ["broker", "ms"],
  "heal-disk": ["broker"],
  cut: ["a", "b", "--one_way"],
  heal: ["a", "b", "--one_way"],
  isolate: ["broker"],
  delay: ["a", "b", "ms", "--one_way"],
  throttle: ["a", "b", "bytes_per_s", "--one_way"],
  lose: ["a", "b", "share", "--one_way"],
  elect: ["topic", "partition"],
  "move-leader": ["topic", "partition", "broker"],
  hold: ["*kinds"],
  release: ["*kinds"],
  step: ["kind", "--count"],
  freeze: [],
  thaw: [],
  advance: ["duration"],
  "abort-transaction": ["id"],
};
const PYTHON = { start: "start_broker", stop: "stop_broker" };

export function verb(name, given = {}) {
  return {
    method: "POST",
    path: `cluster/${name}`,
    body: given,
    python: `cluster.${PYTHON[name] ?? name.replaceAll("-", "_")}(${pythonWords(VERBS[name], given)})`,
    shell: `minibroker cluster ${[name, ...shellWords(VERBS[name], given)].join(" ")}`,
  };
}

function pythonWords(forms, given) {
  const words = [];
  for (const form of forms) {
    const name = form.replace(/^(\*|--)/, "");
    if (!(name in given)) continue;
    if (form.startsWith("*")) words.push(...given[name].map(literal));
    else words.push(form.startsWith("--") ? `${name}=${literal(given[name])}` : literal(given[name]));
  }
  return words.join(", ");
}

export const literal = (value) => (value === true ? "True" : value === false ? "False" : JSON.stringify(value));

function shellWords(forms, given) {
  const words = [];
  for (const form of forms) {
    const name = form.replace(/^(\*|--)/, "");
    if (!(name in given)) continue;
    const value = given[name];
    if (form.startsWith("*")) words.push(...value.map(quoted));
    else if (!form.startsWith("--")) words.push(quoted(value));
    else words.push(`--${name.replaceAll("_", "-")}`, ...(value === true ? [] : [quoted(value)]));
  }
  return words;
}

export function quoted(value) {
  const text = String(value);
  return /^[\w.,:@%+/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

// The three ways to say it, for whoever wants to do it himself.
export function twins(command) {
  const body = command.body === undefined || Object.keys(command.body).length === 0;
  const data = body ? "" : ` -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(command.body))}`;
  const method = command.method === "GET" ? "" : ` -X ${command.method}`;
  return [
    ["Python", command.python],
    ["Shell", command.shell && `${command.shell} -b ${location.host}`],
    ["HTTP", `curl${method} ${quoted(`http://${location.host}/${command.path}`)}${data}`],
  ].filter(([, text]) => text);
}

export const twin = signal(null); // the command that the line at the bottom tells of
export const outcome = signal(null); // of the last one: { command, error }

export async function run(command) {
  twin.value = command;
  outcome.value = null;
  try {
    const answer = await send(command.method, command.path, command.body);
    outcome.value = { command, error: "", answer };
    return answer;
  } catch (failure) {
    batch(() => {
      outcome.value = { command, error: failure.message };
    });
    return undefined;
  }
}

// Whether this is a cluster that can be steered, or one broker.
export const isCluster = () => Boolean(state.value?.cluster.controller);
