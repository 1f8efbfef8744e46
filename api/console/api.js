// REST as any program asks it, and the stream of events; what was answered last is kept for when nothing is. The token is in
// this tab's memory and its sessionStorage, goes into the header Authorization, and never into an address.

import { failed, forget, heard as isThere, isSilent, keep, kept } from "./known.js";
import { learn } from "./names.js";

const KEY = "rollcall.token";
const READ_MS = 10000; // a hanging process refuses no connection: without a limit its page would wait, and stay green
const READ_SILENT_MS = 2000; // of a controller that is silent already: a view asks three questions one after the other, and has what they were answered before
let token = sessionStorage.getItem(KEY) ?? "";
let role = "";

export const hasToken = () => token !== "";
export function signIn(text) {
  token = text.trim();
  sessionStorage.setItem(KEY, token);
}
export function signOut() {
  token = "";
  role = "";
  sessionStorage.removeItem(KEY);
  forget(); // who signs in next may be allowed less
}

export class Problem extends Error {
  constructor(document_, status) {
    super(document_.detail ?? `status ${status}`);
    this.document = document_;
    this.status = status;
  }
}

function headers(more) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : { ...more };
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "same-origin", redirect: "error", referrerPolicy: "no-referrer", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error.name !== "TimeoutError") failed(); // one question that takes long is no silence: the others are heard
    throw noConnection();
  }
  isThere();
  const body = await answer.json().catch(() => null);
  if (body === null && answer.ok) throw noConnection(); // cut off in the middle
  if (!answer.ok) throw new Problem(body ?? { code: "NOT_JSON", detail: `status ${answer.status} without a document`, hint: "" }, answer.status);
  return body;
}

const noConnection = () => new Problem({ code: "NO_CONNECTION", detail: "this controller does not answer", hint: "it is asked again; the other controllers have consoles, too" }, 0);

// Of a controller that does not answer, what it answered before: the page says how old that is (known.js).
export async function get(path, signal) {
  const limit = AbortSignal.timeout(isSilent() ? READ_SILENT_MS : READ_MS);
  try {
    const body = await ask(path, { headers: headers(), signal: signal ? AbortSignal.any([signal, limit]) : limit });
    keep(path, body);
    learn(path, body);
    return body;
  } catch (error) {
    const known = error instanceof Problem && error.status === 0 && isSilent() ? kept(path) : null;
    if (!known) throw error;
    return known.body;
  }
}
export const post = (path, body) => ask(path, { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) });
export const learnRole = async (signal) => { role = (await get("/v1/caller", signal)).role; };
export const mayOrder = () => role !== "viewer"; // where it is not known, the server says who may
export const pathOf = (key) => `/v1/sets/${encodeURIComponent(key.cluster)}/${encodeURIComponent(key.name)}`;
export const requestId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

const LONGEST_PAUSE_MS = 5000;
const SILENCE_MS = 15000; // three heartbeats of the server

// Calls heard(records) for each piece of the record, from `mark` on, for ever; told(state) is "live" or "away".
export async function follow(mark, { heard, gap, told, signal }) {
  let pause = 250;
  while (!signal.aborted) {
    const cut = new AbortController();
    const stop = () => cut.abort();
    signal.addEventListener("abort", stop);
    let watchdog = setTimeout(stop, SILENCE_MS);
    try {
      const more = mark ? { Accept: "text/event-stream", "Last-Event-ID": mark } : { Accept: "text/event-stream" };
      const answer = await fetch("/v1/events/stream", { headers: headers(more), cache: "no-store", signal: cut.signal, redirect: "error" });
      isThere();
      if (!answer.ok) throw new Problem(await answer.json().catch(() => ({})), answer.status);
      told("live");
      pause = 250;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let left = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(watchdog);
        watchdog = setTimeout(stop, SILENCE_MS);
        isThere();
        const frames = (left + value).split("\n\n");
        left = frames.pop();
        const records = [];
        for (const frame of frames) {
          const one = parsed(frame);
          if (one.event === "gap") gap(JSON.parse(one.data));
          else if (one.data) records.push(JSON.parse(one.data));
          if (one.id) mark = one.id;
        }
        if (records.length) heard(records);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Problem)) failed();
      told("away", error);
      if (error instanceof Problem && error.status === 401) return;
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", stop);
    }
    told("away");
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  }
}

function parsed(frame) {
  const found = {};
  for (const line of frame.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) found[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return found;
}
