// Phase bars: one reign in one line, each phase as wide as it took. The figures are those of the history, none is made here.

import { h, svg } from "./dom.js";
import { duration, number, took } from "./words.js";

export const PHASES = ["detected", "proposed", "committed", "notified", "promised", "role-applied", "serving"];
export const WORDS = {
  detected: "the master is found gone",
  proposed: "the election is proposed",
  committed: "a majority of controllers has it",
  notified: "the winner is told",
  promised: "the winner promises: no older epoch",
  "role-applied": "its epoch entry is on disk",
  serving: "it takes messages",
  "first-ack": "the first message is acknowledged",
};
const DETECTED = { switchover: "the old master has handed over", handover: "the old master steps down by itself", requested: "a person wants another master" };
// A master that a person or its own stop moved was never gone.
export const isOfLost = (row) => row.kind === "failover" || row.kind === "unclean";
export const wordsOf = (row, phase) => (phase === "detected" ? DETECTED[row.kind] : null) ?? WORDS[phase] ?? "";
const WIDTH = 600, HEIGHT = 18;

// The spans that make up the outage, with the part that no phase explains; FIRST_ACK comes after it.
export function spansOf(row) {
  const spans = row.phases.filter((span) => span.phase !== "first-ack").map((span) => [span.phase, span.durationUs]);
  if (row.unattributedUs) spans.push(["unexplained", row.unattributedUs]);
  return spans;
}

export function outageText(row) {
  if (row.totalUs === null) return "not known";
  if (!row.missing.includes("fault")) return duration(row.totalUs);
  return row.totalUsMax === null ? `over ${duration(row.totalUs)}` : row.totalUsMax === row.totalUs ? duration(row.totalUs) : `${duration(row.totalUs)} to ${duration(row.totalUsMax)}`;
}

// The outages of a set in a line, by nearest rank, as the analytics have them. A percentile that is the longest of all would be
// no more than that: p50 begins with two failovers, p99 with a hundred.
export function outagesText(rows) {
  const lost = rows.filter(isOfLost), exact = lost.filter((row) => row.totalUs !== null && (!row.missing.includes("fault") || row.totalUsMax === row.totalUs)).map((row) => row.totalUs).sort((a, b) => a - b);
  const percentile = (percent) => {
    const rank = Math.ceil((percent * exact.length) / 100);
    return rank < exact.length ? `p${percent} ${duration(exact[rank - 1])}` : null;
  };
  const count = `${number(lost.length)} ${lost.length === 1 ? "failover" : "failovers"}`;
  const unclear = lost.length - exact.length ? `; of ${number(lost.length - exact.length)} the outage is not known exactly` : "";
  if (exact.length < 2) return lost.length ? `${count}; no percentile${unclear}` : "No failover is on record here.";
  return `${count}: ${percentile(50)}, ${percentile(99) ?? "no p99 before a hundred"}, longest ${duration(exact.at(-1))}${unclear}`;
}

export function bar(row, longestUs) {
  const spans = spansOf(row).filter(([, us]) => us > 0);
  const sum = spans.reduce((all, [, us]) => all + us, 0);
  if (!sum) return h("span", { class: "hint" }, "no phase has a stamp");
  const scale = (WIDTH * Math.max(0.02, sum / Math.max(longestUs, sum))) / sum;
  const told = spans.map(([phase, us]) => `${phase} ${duration(us)}`).join(", ");
  let at = 0;
  return svg("svg", { class: "bar", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `masterEpoch ${row.masterEpoch}: ${told}` },
    spans.map(([phase, us]) => {
      const width = us * scale, x = at;
      at += width;
      return svg("rect", { x: x.toFixed(2), y: 0, width: Math.max(0.5, width - 0.8).toFixed(2), height: HEIGHT, class: `phase ${phase}`, "data-phase": phase, "data-us": us },
        svg("title", null, `${phase}: ${duration(us)}`));
    }));
}

export const legend = () => h("ul", { class: "legend", "aria-label": "Phases" }, [...PHASES, "unexplained"].map((phase) =>
  h("li", null, svg("svg", { viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 2, class: `phase ${phase}` })), " ", phase)));

// Every figure of a reign by name: what the bar shows, for those who read or hear it.
export function figures(row) {
  const line = (name, words, us, kind = "") => h("tr", { class: kind, "data-phase": name }, h("th", { scope: "row" }, name), h("td", { class: "n" }, us === null ? "no stamp" : took(us, { class: "us" })), h("td", { class: "hint" }, words));
  const first = row.phases.find((span) => span.phase === "first-ack");
  return h("table", { class: "figures" },
    h("caption", { class: "unseen" }, `Phases of masterEpoch ${row.masterEpoch}`),
    h("tbody", null,
      row.phases.filter((span) => span.phase !== "first-ack").map((span) => line(span.phase, wordsOf(row, span.phase), span.durationUs)),
      row.unattributedUs ? line("unexplained", "of the outage, no phase tells of it", row.unattributedUs) : null,
      h("tr", { class: "total", "data-phase": "total" }, h("th", { scope: "row" }, "outage"), h("td", { class: "n" }, h("data", { value: row.totalUs ?? "", class: "us" }, outageText(row))), h("td", { class: "hint" }, "timed by the leader alone, not a sum")),
      first ? line("first-ack", `after it, ${WORDS["first-ack"]}`, first.durationUs) : null,
      row.waitedUs === null ? null : line("waited", "of this, a sender waited", row.waitedUs)));
}
