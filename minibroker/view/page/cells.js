// Many partitions at a glance: a cell each, by its health. Colour and pattern say the same; a table says it in words.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor.js";
import { worst, WORST } from "./cluster.js";
import { many, part, placeOf, shown } from "./text.js";

// As the feed names them (docs/http.md).
export const HEALTH = {
  n: "nobody leads",
  m: "fewer in sync than min.insync.replicas",
  u: "not all replicas in sync",
  v: "replicas are moving",
  p: "another than the preferred replica leads",
  k: "in sync",
};
const LISTED_MAX = 100;
const LABELLED_MAX = 24; // topics that have a line of their own

function sums(cells) {
  const all = Object.values(cells).join("");
  return Object.fromEntries(WORST.map((letter) => [letter, all.split(letter).length - 1]));
}

export function Overview({ cells, chosen, asTable }) {
  const topics = Object.keys(cells).sort();
  const found = sums(cells);
  const all = Object.values(found).reduce((a, b) => a + b, 0);
  if (!all) return null;
  const words = WORST.filter((letter) => found[letter]);
  return html`<section class="overview" aria-label="All partitions">
    <header>
      <h2>${many(all, "partition")}</h2>
      <ul class="legend">
        ${words.map((letter) => html`<li key=${letter}><i class=${`swatch h-${letter}`}></i>${found[letter]} ${HEALTH[letter]}</li>`)}
      </ul>
    </header>
    ${
      asTable
        ? html`<${List} cells=${cells} all=${all} />`
        : topics.length <= LABELLED_MAX
          ? html`<div class="rows">
              ${topics.map(
                (topic) =>
                  html`<div class="row" key=${topic}>
                    <a href=${`#/cluster/${part(topic)}`}><bdi>${shown(topic, 48)}</bdi></a>
                    <${Canvas} topics=${[topic]} cells=${cells} chosen=${chosen} letters=${cells[topic]} />
                  </div>`,
              )}
            </div>`
          : html`<${Canvas}
              topics=${topics}
              cells=${cells}
              chosen=${chosen}
              letters=${topics.map((topic) => cells[topic]).join(" ")}
            />`
    }
  </section>`;
}

function List({ cells, all }) {
  const found = worst(cells, LISTED_MAX);
  return html`<div class="scroll">
    <table>
      <caption class="spoken">
        Partitions, the worst first
      </caption>
      <thead>
        <tr>
          <th scope="col">partition</th>
          <th scope="col">health</th>
        </tr>
      </thead>
      <tbody>
        ${found.map(
          ({ topic, number, letter }) =>
            html`<tr key=${placeOf(topic, number)}>
              <th scope="row">
                <a href=${`#/cluster/${part(topic)}/${number}`}><bdi>${shown(placeOf(topic, number))}</bdi></a>
              </th>
              <td><i class=${`swatch h-${letter}`}></i>${HEALTH[letter]}</td>
            </tr>`,
        )}
      </tbody>
    </table>
    ${all > found.length ? html`<p class="more">and ${many(all - found.length, "more partition")}, none of them worse</p>` : null}
  </div>`;
}

// One canvas: cells in lines, a gap where a topic ends.
function Canvas({ topics, cells, chosen, letters }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState(-1); // where the keys are
  const size = letters.length > 2000 ? 6 : letters.length > 300 ? 9 : 14;
  const step = size + (size > 6 ? 2 : 1);
  const across = Math.max(1, Math.floor(width / step));
  useEffect(() => {
    const holder = canvas.current.parentElement;
    const look = () => setWidth(holder.clientWidth);
    const observer = new ResizeObserver(look);
    observer.observe(holder);
    look();
    return () => observer.disconnect();
  }, []);
  const mine = chosen ? indexOf(topics, cells, chosen) : -1;
  const scheme =
    getComputedStyle(document.documentElement).colorScheme + matchMedia("(prefers-color-scheme: dark)").matches;
  useLayoutEffect(() => {
    if (width) paint(canvas.current, { letters, size, step, across, at, mine, scheme });
  }, [letters, width, at, mine, scheme]);
  const placeAt = (index) => {
    for (const topic of topics) {
      if (index < cells[topic].length) return index < 0 ? null : { topic, number: index, letter: cells[topic][index] };
      index -= cells[topic].length + 1;
    }
    return null;
  };
  const hit = (event) =>
    Math.floor(event.offsetY / step) * across + Math.min(across - 1, Math.floor(event.offsetX / step));
  const open = (place) => {
    if (place) location.hash = `#/cluster/${part(place.topic)}/${place.number}`;
  };
  const move = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    if (event.key === "Enter") open(placeAt(at));
    else if (by !== undefined) {
      let next = Math.max(0, Math.min(letters.length - 1, at + by));
      if (letters[next] === " ") next += by > 0 ? 1 : -1;
      setAt(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const place = placeAt(at);
  const label = place
    ? `${placeOf(place.topic, place.number)}: ${HEALTH[place.letter]}`
    : `${topics.length === 1 ? topics[0] : "All topics"}: arrow keys walk through partitions, Enter opens one`;
  return html`<div class="canvas">
    <canvas
      ref=${canvas}
      tabindex="0"
      role="img"
      aria-label=${shown(label, 200)}
      onClick=${(event) => open(placeAt(hit(event)))}
      onMouseMove=${(event) => {
        const over = placeAt(hit(event));
        canvas.current.title = over ? `${placeOf(over.topic, over.number)}: ${HEALTH[over.letter]}` : "";
      }}
      onFocus=${() => at < 0 && setAt(0)}
      onBlur=${() => setAt(-1)}
      onKeyDown=${move}
    ></canvas>
  </div>`;
}

function indexOf(topics, cells, chosen) {
  let index = 0;
  for (const topic of topics) {
    if (topic === chosen.topic) return chosen.number < cells[topic].length ? index + chosen.number : -1;
    index += cells[topic].length + 1;
  }
  return -1;
}

function paint(canvas, { letters, size, step, across, at, mine, scheme }) {
  const ratio = window.devicePixelRatio || 1;
  const lines = Math.ceil(letters.length / across);
  const width = Math.min(letters.length, across) * step;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(lines * step * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${lines * step}px`;
  const style = getComputedStyle(canvas);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const placeOf = (index) => [(index % across) * step, Math.floor(index / across) * step];
  for (const letter of WORST) {
    const cells = new Path2D();
    const marks = new Path2D();
    for (let index = letters.indexOf(letter); index >= 0; index = letters.indexOf(letter, index + 1)) {
      const [x, y] = placeOf(index);
      cells.rect(x, y, size, size);
      mark(marks, letter, x, y, size);
    }
    pen.fillStyle = colourOf(canvas, letter, scheme);
    pen.fill(cells);
    pen.strokeStyle = style.getPropertyValue("--paper");
    pen.lineWidth = Math.max(1, size / 8);
    pen.stroke(marks);
  }
  pen.strokeStyle = style.getPropertyValue("color");
  pen.lineWidth = 2;
  for (const index of [at, mine]) {
    const [x, y] = placeOf(index);
    if (index >= 0) pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
  }
}

// Each state has a pattern, too: a cross, two lines, a line, a dot.
function mark(path, letter, x, y, size) {
  const line = (x1, y1, x2, y2) => {
    path.moveTo(x + x1 * size, y + y1 * size);
    path.lineTo(x + x2 * size, y + y2 * size);
  };
  if (letter === "n") line(0.15, 0.15, 0.85, 0.85);
  if (letter === "n") line(0.85, 0.15, 0.15, 0.85);
  if (letter === "m") line(0, 0.33, 1, 0.33);
  if (letter === "m") line(0, 0.67, 1, 0.67);
  if (letter === "u") line(0, 1, 1, 0);
  if (letter === "v") line(0.5, 0, 0.5, 1);
  if (letter === "p") line(0.4, 0.5, 0.6, 0.5);
}

const seen = {};
function colourOf(canvas, letter, scheme) {
  const key = letter + scheme;
  if (!seen[key]) {
    const probe = document.createElement("i");
    probe.className = `swatch h-${letter}`;
    canvas.parentElement.append(probe);
    seen[key] = getComputedStyle(probe).backgroundColor;
    probe.remove();
  }
  return seen[key];
}
