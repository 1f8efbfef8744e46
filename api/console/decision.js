// How one reign came about: the decision with its evidence, the proof of loss, and the film of its own events.

import { get, pathOf } from "./api.js";
import { cells, h, put, table } from "./dom.js";
import { film } from "./film.js";
import { listen, paced } from "./live.js";
import { label, labels } from "./names.js";
import { bar, figures, legend, outageText } from "./phases.js";
import { age, epochOf, eventList, number, refOf, setLink, size, utc } from "./words.js";

const CANDIDATES = [["Rank", "n"], ["Replica", ""], ["Verdict", ""], ["Epoch", "n"], ["End of log", "n"], ["Heard", "n"], ["Priority", "n"], ["Reason", "wide"]];
const EVIDENCE = [["Replica", ""], ["Incarnation", ""], ["Session", "n"], ["Heard", "n"], ["Ready", ""], ["Epoch", "n"], ["End of log", "n"], ["Confirmed", "n"], ["Released", "n"]];
const OUTCOMES = ["elected", "eligible", "rejected", "excluded"];
const PAUSE_MS = 500;

export async function decision(main, key, epoch, query, signal) {
  document.title = `${key.name} masterEpoch ${epoch} · Rollcall`;
  const load = () => get(`${pathOf(key)}/epochs/${epoch}?consistency=local`, signal);
  let found = await load();
  const place = h("div", { class: "decision" }), unfolded = new Set();
  put(main, h("nav", { "aria-label": "Where", class: "where" }, h("a", { href: "#/fleet" }, "Fleet"), " / ", key.cluster, " / ", h("a", { href: setLink(key) }, key.name), " / ", `masterEpoch ${epoch}`), place);
  const player = h("section", { class: "film", "aria-label": "Film of this reign" });
  function shown() {
    const { row, election, loss } = found, event = election.event;
    const candidates = [...event.verdict.candidates].sort((a, b) => (a.rank === null) - (b.rank === null) || (a.rank ?? 0) - (b.rank ?? 0) || OUTCOMES.indexOf(a.outcome) - OUTCOMES.indexOf(b.outcome) || a.brokerId - b.brokerId);
    put(place,
      h("section", { class: "head" },
        h("h1", null, `${key.name} masterEpoch ${row.masterEpoch}: ${row.kind}`),
        h("p", { class: "lead" }, `from ${row.fromMaster === null ? "nobody" : `replica ${label(key, row.fromMaster)}`} to replica ${label(key, row.toMaster)}: ${row.cause}`),
        h("p", { class: "read" }, `elected ${utc(row.electedAtMs)} by ${row.requestedBy}, event ${refOf(election)}`),
        h("dl", { class: "facts" }, [["outage", outageText(row)], ["lost", row.lossBytes === null ? "unknown" : size(row.lossBytes)], ["proof", row.grade ?? "none yet"], ["cut", row.cutBytes === null ? "not known" : size(row.cutBytes)]].map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))))),
      player,
      h("div", { class: "columns" },
        h("section", { class: "grow", "aria-labelledby": "h-phases" }, h("h2", { id: "h-phases" }, "Phases"), legend(), bar(row, row.totalUs ?? 1), figures(row),
          row.missing.includes("fault") ? h("p", { class: "hint" }, "The first sign of the fault was not seen: the outage is given by its bounds.") : null),
        h("section", { class: "grow", "aria-labelledby": "h-proof" }, h("h2", { id: "h-proof" }, "Proof"), loss
          ? [h("p", null, h("strong", null, loss.grade), loss.boundBytes === null ? "" : `, at most ${size(loss.boundBytes)} lost`, loss.cutBytes === null ? "" : `; the old master cut ${size(loss.cutBytes)} that was never acknowledged`),
            h("ul", { class: "facts-list" }, loss.facts.map((fact) => h("li", null, "✓ ", fact)), loss.missing.map((fact) => h("li", { class: "warn" }, "○ missing: ", fact)))]
          : h("p", null, "None yet; the new master has not reported that it entered."),
          h("h2", null, "Rules, checked again on the record"), h("ul", { class: "facts-list" }, found.invariants.map((line) => h("li", { class: line.startsWith("BROKEN") ? "bad" : "" }, line.startsWith("holds") ? "✓ " : line.startsWith("BROKEN") ? "■ " : "○ ", line))))),
      h("h2", null, "Who could have been elected"),
      h("p", { class: "hint" }, `Policy ${event.verdict.policy}. masterEpoch ${event.verdict.previousEpoch} → ${event.verdict.masterEpoch}, SyncStateSet ${labels(key, event.verdict.previousSet)} → ${labels(key, event.verdict.syncStateSet)}, SyncStateSetEpoch ${event.verdict.previousSetEpoch} → ${event.verdict.syncStateSetEpoch}.`),
      table("Candidates", CANDIDATES, candidates.map((one) => h("tr", { class: one.outcome }, cells(CANDIDATES, [one.rank === null ? "—" : String(one.rank), label(key, one.brokerId), [one.outcome === "elected" ? "◆ " : one.outcome === "eligible" ? "○ " : "✕ ", one.outcome], epochOf(one.lastEpoch), number(one.maxOffset), age(one.heartbeatAgeMs), String(one.priority), one.reason])))),
      h("h2", null, "Evidence"),
      h("p", { class: "hint" }, `Read at index ${number(event.evidence.readAtIndex)}, against masterEpoch ${event.evidence.masterEpoch} and SyncStateSetEpoch ${event.evidence.syncStateSetEpoch}.`),
      table("Evidence", EVIDENCE, event.evidence.replicas.map((one) => h("tr", null, cells(EVIDENCE, [label(key, one.brokerId), one.incarnation.slice(0, 8), String(one.sessionOrdinal), age(one.heartbeatAgeMs), one.isReady ? "yes" : "no", epochOf(one.lastEpoch), number(one.maxOffset), number(one.confirmOffset), number(one.released)])))),
      h("h2", null, "Its own events"), h("ol", { class: "events" }, eventList(found.events, unfolded)));
  }
  shown();
  const play = film(player, key, found, signal);
  const renew = paced(async () => {
    const now = await load();
    if (now.events.length === found.events.length) return;
    found = now;
    shown();
    play.renew(found);
  }, PAUSE_MS, signal);
  const unlisten = listen((records) => {
    if (records.some((record) => record.setKey?.cluster === key.cluster && record.setKey?.name === key.name)) renew();
  });
  signal.addEventListener("abort", unlisten);
}
