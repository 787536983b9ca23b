// Names, numbers and times as people read them. What comes from clients may be anything: it is text, and nothing else.

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// A name that somebody else has chosen: what cannot be seen, or turns letters around, is spelled out; not too long.
export function shown(name, most = 80) {
  const text = String(name);
  const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return short.replace(UNSEEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const numbers = new Intl.NumberFormat("en");
export const count = (number) => numbers.format(number);

export function bytes(number) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (number >= 1000 && at < units.length - 1) {
    number /= 1000;
    at += 1;
  }
  return `${at && number < 10 ? number.toFixed(1) : Math.round(number)} ${units[at]}`;
}

export const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

// 12:00:07.250, by the clock of whoever looks
export function time(ms, withMs = true) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMs ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return `${(ms / 3_600_000).toFixed(1)} h`;
}

// Topics have no slash and no sign that means something in an address, groups may have any.
export const part = (name) => encodeURIComponent(name);

export const placeOf = (topic, number) => `${topic}-${number}`;
