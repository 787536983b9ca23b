// The place Lessons: the one that is played on these brokers beside what it does to them; elsewhere all there are.

import { html, signal, useEffect } from "./vendor.js";
import { link, send, state } from "./feed.js";
import { copy, Do } from "./controls.js";
import { Cluster, query as clusterQuery } from "./cluster.js";
import { many, shown } from "./text.js";

const found = signal(null); // what the broker said last: a lesson, or all there are

export const query = (now) => (now?.cluster.lesson ? clusterQuery(now, []) : "sums=1");

const keep = (answer) => (found.value = answer);

export function View() {
  const now = state.value;
  const [name, turn] = now.cluster.lesson ?? [];
  const said = found.value;
  useEffect(() => {
    // A broker that has gone is asked again when it is back.
    send("GET", name ? "api/lesson" : "api/lessons").then(keep, () => {});
  }, [name, turn, now.boot, link.value.how]);
  if (!said || !said.steps !== !name) return null;
  if (!name) return html`<${All} lessons=${said} />`;
  return html`<div class="lesson">
    <${Lecture} lesson=${said} />
    <div class="stage"><${Cluster} path=${[]} /></div>
  </div>`;
}

function All({ lessons }) {
  return html`<section class="panel">
    <header class="tools"><h2>${many(lessons.length, "lesson")}</h2></header>
    <p class="more">Played at a terminal, each says where its page is.</p>
    <table class="titles">
      ${lessons.map(({ name, title }) => {
        const line = `minibroker lesson ${name}`;
        return html`<tr key=${name}>
          <td>${title}</td>
          <td class="settings"><code>${line}</code></td>
          <td><button type="button" class="small" aria-label=${`Copy ${line}`} onClick=${() => copy(line)}>copy</button></td>
        </tr>`;
      })}
    </table>
  </section>`;
}

function Lecture({ lesson }) {
  const { title, steps, played, next, last_words, words, keys, turn, is_moving } = lesson;
  const button = (label, what, kind, choice) =>
    html`<${Do}
      command=${{ method: "POST", path: "api/lesson", body: { do: what, choice, turn } }}
      label=${label}
      kind=${kind}
      disabled=${is_moving && "wait"}
      onDone=${keep}
    />`;
  const question = next?.question;
  const before = played.slice(0, -1);
  const last = played.at(-1);
  return html`<article class="panel lecture">
    <h2>${title}</h2>
    <small class="dim">${next ? `step ${played.length + 1} of ${steps}` : "the end"}${is_moving ? ", playing …" : ""}</small>
    ${
      before.length
        ? html`<details>
            <summary>${many(before.length, "step")} before</summary>
            ${before.map((step, at) => html`<${Played} key=${at} step=${step} isWhole />`)}
          </details>`
        : null
    }
    <div aria-live="polite">${last ? html`<${Played} step=${last} />` : null}</div>
    ${next ? html`<${Before} step=${next} />` : html`<${Prose} texts=${last_words} />`}
    ${
      question
        ? html`<p><b>What do you think: ${question.text}</b></p>
            <ol class="choices">
              ${question.choices.map((text, at) => html`<li>${button(text, "answer", "", at + 1)}</li>`)}
            </ol>`
        : null
    }
    <p class="deeds">
      ${keys.n ? button(question ? "next, without an answer" : "next", "on", "on") : null}
      ${keys.b ? button("back", "back", "undo") : null}
    </p>
    ${
      words.length
        ? html`<details>
            <summary>words</summary>
            ${words.map(([word, meaning]) => html`<p><b>${word}</b>: ${meaning}</p>`)}
          </details>`
        : null
    }
  </article>`;
}

// Between backquotes stands what one types.
const Prose = ({ texts }) =>
  texts.map((text) => html`<p>${text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part))}</p>`);

const Commands = ({ step }) => html`<div>${step.commands.map((line) => html`<code class="command">${line}</code>`)}</div>`;

const Before = ({ step }) => html`<${Prose} texts=${step.prose} /><${Commands} step=${step} />`;

function Played({ step, isWhole }) {
  const { judged, deviation, happened, more } = step;
  return html`<section class="played">
    <${isWhole ? Before : Commands} step=${step} />
    <ul>
      ${happened.map(([mark, sentence]) => html`<li class=${mark === "<" ? "answer" : ""}>${shown(sentence, 600)}</li>`)}
      ${more ? html`<li>and ${many(more, "more line")}</li>` : null}
    </ul>
    ${judged ? html`<div class=${judged.is_right ? "judged right" : "judged"}><${Prose} texts=${judged.words} /></div>` : null}
    ${deviation ? html`<p class="warn">${shown(deviation, 600)}</p>` : null}
  </section>`;
}
