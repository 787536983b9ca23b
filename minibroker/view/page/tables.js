// Lanes as figures.

import { html } from "./vendor.js";
import { behind, roleOf } from "./lanes.js";
import { count, span } from "./text.js";

const NAMES = [
  ...["broker", "role", "epoch", "start", "LSO", "HW", "LEO"],
  ...["to LSO", "to HW", "to LEO", "asked from", "behind since"],
];

export function Table({ now, partition }) {
  return html`<div class="scroll">
    <table>
      <caption class="spoken">
        Replicas of ${partition.key}
      </caption>
      <thead>
        <tr>
          ${NAMES.map((name) => html`<th scope="col">${name}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${partition.lanes.map((lane) => {
          const lags = behind(partition, lane);
          const figures = lane.runs ? [lane.believed, lane.start, lane.lso, lane.hw, lane.leo] : ["", "", "", "", ""];
          const since =
            lane.caughtUp === null || !lane.runs || lane.fetched < 0
              ? ""
              : lane.caughtUp < 0
                ? "never had all"
                : span(now.steady_ms - lane.caughtUp);
          return html`<tr key=${lane.broker}>
            <th scope="row">b${lane.broker}</th>
            <td>${roleOf(partition, lane)}</td>
            ${figures.map((figure) => html`<td class="number">${figure === "" ? "" : count(figure)}</td>`)}
            ${["lso", "hw", "leo"].map((name) => html`<td class="number">${lags ? count(lags[name]) : ""}</td>`)}
            <td class="number">${lane.fetched >= 0 && lane.runs ? count(lane.fetched) : ""}</td>
            <td>${since}</td>
          </tr>`;
        })}
      </tbody>
    </table>
  </div>`;
}
