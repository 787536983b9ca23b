// What becomes of a state by a frame. The tests have the same in view/reduce.py.

export function reduce(state, frame) {
  const after = { ...state, seq: frame.seq, t: frame.t, steady_ms: frame.steady_ms };
  for (const name of frame.anew ?? []) after[name] = {};
  for (const [name, rows] of Object.entries(frame.set ?? {})) after[name] = { ...after[name], ...rows };
  for (const [name, keys] of Object.entries(frame.gone ?? {})) {
    after[name] = { ...after[name] };
    for (const key of keys) delete after[name][key];
  }
  return after;
}
