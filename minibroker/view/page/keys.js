// What keys do, as `?` shows it.

import { html } from "./vendor.js";

const KEYS = [
  ["1 – 6", "go to a place"],
  ["/", "find a topic, a group, a transactional id"],
  ["[ ]", "choose a broker"],
  ["k", "kill the chosen broker, or start it"],
  ["p", "pause it, or let it go on"],
  ["h s r", "hold replication, step, release"],
  ["f a", "freeze the clock or let it go on, move it on by a second"],
  ["n b", "next step of a lesson, and back"],
  ["t", "lanes or table"],
  ["← →", "fields of a batch"],
  ["+ −", "more or fewer offsets"],
  ["space", "pause what happened"],
  ["e", "routine events, too"],
  ["d", "dark, light, as the system"],
  ["?", "this"],
];

export function Keys({ onClose }) {
  const opened = (dialog) => {
    if (dialog && !dialog.open) dialog.showModal();
  };
  return html`<dialog class="keys" ref=${opened} onClose=${onClose} aria-labelledby="keys-title">
    <h2 id="keys-title">Keys</h2>
    <dl>
      ${KEYS.map(
        ([key, what]) =>
          html`<div key=${key}>
            <dt><kbd>${key}</kbd></dt>
            <dd>${what}</dd>
          </div>`,
      )}
    </dl>
    <button type="button" autofocus onClick=${(event) => event.target.closest("dialog").close()}>close</button>
  </dialog>`;
}
