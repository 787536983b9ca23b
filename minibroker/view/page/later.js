// What is not needed at first: cells, letters, tables, keys, and the other places. Sent as one file; here those are in
// front that others import.

export * as asking from "./asking.js";
export * as cells from "./cells.js";
export * as faults from "./faults.js";
export * as groups from "./groups.js";
export * as keys from "./keys.js";
export * as lessons from "./lessons.js";
export * as letters from "./letters.js";
export * as log from "./log.js";
export * as tables from "./tables.js";
export * as topic from "./topic.js";
export * as topics from "./topics.js";
export * as transactions from "./transactions.js";
