// What all views share: the record as it comes, and how often a view may ask for the state behind it.

import { follow, get, pathOf } from "./api.js";
import { isKnown, learnEvent } from "./names.js";
import { isNotable } from "./words.js";

const KEPT = 500;
const FAILED_MS = 2000;
const NAMES_MS = 500; // between two sets whose names are asked for: a storm of events of a thousand sets is no storm of questions
export const recent = []; // newest last; the views begin with it
const listeners = new Set();
export const listen = (heard) => {
  listeners.add(heard);
  return () => listeners.delete(heard);
};

// Begins behind the newest events; returns when these are known. `told` hears "live" and "away".
export async function begin(told, signal) {
  recent.length = 0;
  const page = await get("/v1/events?newest=true&limit=200", signal);
  recent.push(...page.events);
  const mark = page.nextFrom ? `${page.nextFrom.term}.${page.nextFrom.index}.${page.nextFrom.ordinal}` : null;
  let unnamed = null;
  const ask = paced(() => (unnamed && !isKnown(unnamed) ? get(`${pathOf(unnamed)}?consistency=local`, signal) : Promise.resolve()), NAMES_MS, signal);
  follow(mark, {
    signal,
    told,
    gap: () => {},
    heard: (records) => {
      recent.push(...records);
      if (recent.length > KEPT) recent.splice(0, recent.length - KEPT);
      records.forEach(learnEvent);
      for (const listener of listeners) listener(records);
      unnamed = records.findLast((record) => record.setKey && isNotable(record) && !isKnown(record.setKey))?.setKey ?? unnamed;
      if (unnamed && !isKnown(unnamed)) ask();
    },
  });
  return page;
}

// Runs `work` at once after a quiet time, and then at most every `pauseMs`: a failover is seen when it happens, and a storm
// of events costs the controller one question a second for each who looks. Work that failed is done again after a while:
// by itself nobody would ask before the next event, and the page would show the state before this one.
export function paced(work, pauseMs, signal) {
  let isRunning = false, isDue = false, timer = 0;
  async function run() {
    isRunning = true;
    isDue = false;
    let restMs = pauseMs;
    await work().catch(() => {
      isDue = true;
      restMs = Math.max(pauseMs, FAILED_MS);
    });
    timer = signal.aborted ? 0 : setTimeout(() => {
      isRunning = false;
      if (isDue) run();
    }, restMs);
  }
  signal.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    isDue = true;
    if (!isRunning && !signal.aborted) run();
  };
}
