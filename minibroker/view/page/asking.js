// What is asked of a broker beside its state: the address of a place says what, and can be sent to somebody.

import { html, useEffect, useState } from "./vendor.js";
import { send, state } from "./feed.js";
import { shown } from "./text.js";

export const asked = () => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1]));

// A path with the words of a query that say something.
export const withWords = (path, words) => `${path}?${new URLSearchParams(Object.entries(words).filter(([, word]) => word))}`;

// Where to begin: at an offset, or at a time, which may be ms since 1970.
export const beginOf = ({ offset, time }) =>
  offset ? { offset } : { time: time && String(/^\d+$/.test(time) ? time : Date.parse(time)) };

// A form whose fields are words of the address. What somebody types stays until there is another address.
export function Asking({ place, children }) {
  const go = (event) => {
    event.preventDefault();
    const words = Object.fromEntries(new FormData(event.target, event.submitter));
    if (words.time) words.time = new Date(beginOf({ time: words.time }).time * 1).toJSON() ?? words.time;
    location.hash = withWords(place, words);
  };
  return html`<form class="wishes" key=${location.hash} onSubmit=${go}>${children}</form>`;
}

export const Field = ({ name, label, kind, ...given }) =>
  html`<label
    ><span class="what">${label}</span
    ><input name=${name} class=${kind} min="0" ...${given} defaultValue=${asked()[name]}
  /></label>`;

// What a list is to be narrowed down to, as somebody types it into a signal.
export const Find = ({ filter, noun }) =>
  html`<input
    type="search"
    class="filter"
    placeholder=${`find a ${noun} ( / )`}
    aria-label=${`Find a ${noun}`}
    value=${filter.value}
    onInput=${(event) => (filter.value = event.target.value)}
  />`;

export const fits = (filter, name) => name.toLowerCase().includes(filter.value.toLowerCase());

export const Begin = ({ label, placeholder }) =>
  html`<${Field} name="offset" label=${label} kind="text" type="number" placeholder=${placeholder} />
    <${Field} name="time" label="or time" kind="filter" placeholder="2026-01-31 12:00" />`;

// What a path answers, and why not; asked anew by another broker, and as often as `turn` changes.
export function useAnswer(path, turn) {
  const [found, setFound] = useState({});
  const key = path && `${path} ${turn} ${state.value.boot}`;
  useEffect(() => {
    const take = (more) => setFound((now) => (now.key === key ? { key, ...more } : now));
    setFound((now) => ({ ...now, key }));
    if (path) send("GET", path).then((answer) => take({ answer }), (failure) => take({ why: failure.message }));
  }, [key]);
  return found;
}

export const Failed = ({ why }) => (why ? html`<p class="bad" role="alert">${shown(why, 400)}</p>` : null);
