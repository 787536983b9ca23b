// What the page takes from others, as one module: `make vendor` makes ../page/vendor.js of it.
export { render } from "preact";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, signal } from "@preact/signals";
import { h } from "preact";
import htm from "htm";
export const html = htm.bind(h);
