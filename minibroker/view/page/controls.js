// Buttons that do something to the brokers: each tells how the same is said in Python, in a shell and by HTTP.

import { html, signal, useEffect } from "./vendor.js";
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

// What is not needed at first comes with its style; a signal, null before. Asked for again if the broker had gone.
export const rest = signal(null);
let style = null;
export async function fetchRest() {
  style ??= new Promise((done) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: "page/later.css" });
    sheet.onload = sheet.onerror = done;
    document.head.append(sheet);
  });
  await style;
  rest.value ??= await import("./later.js").catch(() => null);
}

// A view of a module of those.
export const later = (module, name) =>
  function Later(given) {
    useEffect(() => {
      if (!rest.value) fetchRest();
    }, []);
    return rest.value ? html`<${rest.value[module][name]} ...${given} />` : null;
  };
