// What is known although the controller of this page is silent: its last answers, since when, and who else has a console.
//
// Silence is a fact of the page, not of one question: whoever asks reports it here, and every view shows what it knew, grey
// and with its age. A green word that nobody has confirmed since would send people to bed during an outage.

const KEPT = 100; // answers
const SILENT_MS = 12000; // views ask and the stream beats every 5 s: silence of two of them, also where nothing fails, as of a process that hangs
const TICK_MS = 1000;
const answers = new Map(); // path -> { body, atMs }, the oldest first
const watchers = new Set();
let heardAtMs = Date.now(), isLost = false, timer = 0;

export const isSilent = () => isLost;
export const silentMs = () => (isLost ? Math.max(0, Date.now() - heardAtMs) : 0);
export const whole = (ms) => (ms < 60000 ? `${Math.floor(ms / 1000)} s` : ms < 3600000 ? `${Math.floor(ms / 60000)} min` : `${Math.floor(ms / 3600000)} h`);
// In the place of what is no longer known: "not known since 25 s (last: serves)".
export const lastly = (words, ms = silentMs()) => `not known since ${whole(ms)} (last: ${words})`;
export const heardAt = (path) => answers.get(path)?.atMs ?? Date.now();
export const ageOf = (path) => (isLost && answers.has(path) ? Math.max(0, Date.now() - answers.get(path).atMs) : 0);

function turn(lost) {
  const changes = lost !== isLost;
  isLost = lost;
  if (changes || lost) for (const watcher of [...watchers]) watcher(lost, changes);
}

// Anything of the controller, a refusal too, says that it is there.
export function heard() {
  heardAtMs = Date.now();
  if (isLost) turn(false);
}
export const failed = () => turn(true);
export function begin() {
  heardAtMs = Date.now();
  timer ||= setInterval(() => { if (isLost || Date.now() - heardAtMs > SILENT_MS) turn(true); }, TICK_MS);
}

// Calls work(isLost, changes) when the controller falls silent, every second while it is, and when it is back.
export function watch(work, signal) {
  watchers.add(work);
  signal?.addEventListener("abort", () => watchers.delete(work));
}

export function keep(path, body) {
  answers.delete(path);
  answers.set(path, { body, atMs: Date.now() });
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
}
export const kept = (path) => answers.get(path) ?? null;
export function forget() {
  answers.clear();
  clearInterval(timer);
  timer = 0;
  if (isLost) turn(false);
}

// The newest line that an overview had of a set; null: no page of the fleet has shown it.
export function lineOf(key) {
  const found = [...answers.values()].reverse().flatMap(({ body, atMs }) => (body.sets ?? []).map((line) => ({ line, atMs })));
  return found.find(({ line }) => line.setKey?.cluster === key.cluster && line.setKey.name === key.name) ?? null;
}

export const CONTROLLERS = "/v1/controllers";
export const controllers = () => kept(CONTROLLERS)?.body.controllers ?? [];
export const consoleOf = (controller) => (controller.restAddress ? `${location.protocol}//${controller.restAddress}/console${location.hash}` : null);
