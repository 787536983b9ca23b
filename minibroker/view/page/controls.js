// Buttons that do something to the brokers: each tells how the same is said in Python, in a shell and by HTTP.

import { html, useEffect, useState } from "./vendor.js";
import { mayChange, whyNot } from "./feed.js";
import { outcome, run, twin, twins } from "./commands.js";
import { shown } from "./text.js";

export function Do({ command, label, words, danger, disabled, kind, onDone }) {
  const tell = () => {
    twin.value = command;
  };
  const act = async () => {
    if (!mayChange.value || disabled) return;
    const answer = await run(command);
    if (answer !== undefined) onDone?.(answer);
  };
  const why = mayChange.value ? disabled || "" : whyNot.value;
  return html`<button
    type="button"
    class=${["do", danger && "danger", kind].filter(Boolean).join(" ")}
    aria-label=${words}
    aria-disabled=${why ? "true" : undefined}
    title=${why || [words ?? label, command.python || command.shell].filter(Boolean).join(": ")}
    onClick=${act}
    onMouseEnter=${tell}
    onFocus=${tell}
  >
    ${label}
  </button>`;
}

export function TwinBar() {
  const command = twin.value;
  const last = outcome.value;
  if (!command && !last?.error) return null;
  const failed = last?.error && last.command === command;
  return html`<footer class="twins" aria-label="The same as code">
    ${last?.error ? html`<p class="refused" role="alert">${shown(last.error, 400)}</p>` : null}
    ${
      command
        ? twins(command).map(
            ([name, text]) =>
              html`<div class="twin" key=${name}>
                <span class="what">${name}</span><code>${shown(text, 300)}</code>
                <button type="button" class="copy" aria-label=${`Copy the line of ${name}`} onClick=${() => copy(text)}>
                  copy
                </button>
              </div>`,
          )
        : null
    }
    ${last && !failed && last.command === command && !last.error ? html`<span class="done" role="status">done</span>` : null}
    <button
      type="button"
      class="close"
      aria-label="Hide these lines"
      onClick=${() => {
        twin.value = null;
        outcome.value = null;
      }}
    >
      ×
    </button>
  </footer>`;
}

export function copy(text) {
  navigator.clipboard?.writeText(text).catch(() => {});
}

// What comes when it is shown first, with the style of all that does.
let style = null;
export async function styled(load) {
  style ??= new Promise((done) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: "page/later.css" });
    sheet.onload = sheet.onerror = done;
    document.head.append(sheet);
  });
  await style;
  return load();
}

// A view of a module that comes when it is shown first.
export function later(load, name) {
  let View = null;
  return function Later(given) {
    const [, redraw] = useState(false);
    useEffect(() => {
      styled(load).then(
        (module) => {
          View = module[name];
          redraw(true);
        },
        () => {},
      ); // the broker has gone: it comes when it is shown again
    }, []);
    return View ? html`<${View} ...${given} />` : null;
  };
}
