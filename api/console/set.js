// One set: its replicas as they are now, its reigns, its orders; or (set/CLUSTER/NAME/epoch/N) how one reign came about.

import { get, pathOf } from "./api.js";
import { decision } from "./decision.js";
import { cells, h, put, svg, table } from "./dom.js";
import { ageOf, heardAt, isSilent, lastly, lineOf, silentMs, watch } from "./known.js";
import { listen, paced, recent } from "./live.js";
import { label, labelled, labels } from "./names.js";
import { ordersOf } from "./orders.js";
import { bar, legend, outagesText, outageText } from "./phases.js";
import { trend } from "./trend.js";
import { age, ago, alarmOf, badge, duration, eventList, hostLink, hostOf, lately, mood, number, problemBox, problemWords, readAt, setLink, size, utc, when } from "./words.js";

const COLUMNS = [["Replica", "name"], ["Role", ""], ["In sync", ""], ["End of log", "n"], ["Log", "bars"], ["Confirmed", "n"], ["Behind", "n"], ["Heard", "n"], ["Address", "wide"], ["Zone", ""]];
const REIGNS = [["Epoch", "n"], ["When", "when"], ["Kind", ""], ["From → to", ""], ["Phases", "bars"], ["Outage", "n"], ["Lost", "n"], ["Proof", ""], ["Cause", "wide"]];
const SOFT_MS = 1000;
const HISTORY_PAUSE_MS = 500;
const EVENTS = 100;
const REIGNS_SHOWN = 50, REIGNS_KNOWN = 500; // of these the figures are made; asked for once, then the newest alone

export async function show(main, parts, query, signal) {
  const key = { cluster: parts[0], name: parts[1] };
  if (parts[2] === "epoch") return decision(main, key, Number(parts[3]), query, signal);
  document.title = `${key.name} · Rollcall`;
  const head = h("section", { class: "head", "aria-labelledby": "of" });
  const replicas = h("section", { "aria-label": "Replicas" });
  const orders = h("section", { "aria-label": "Orders", class: "orders" });
  const reigns = h("section", { "aria-label": "History" });
  const events = h("ol", { class: "events", "aria-label": "Newest events of this set" });
  put(main, h("nav", { "aria-label": "Where", class: "where" }, h("a", { href: "#/fleet" }, "Fleet"), " / ", key.cluster, " / ", key.name), head, replicas, orders,
    h("h2", null, "Reigns"), reigns, h("h2", null, "Newest events"), events);

  const isOwn = (record) => record.setKey?.cluster === key.cluster && record.setKey.name === key.name;
  let answer = null, isLocal = true;
  async function loadSet() {
    // On the leader what it knows itself, at once. A follower hears no heartbeats: it asks the leader for us.
    let found = await get(`${pathOf(key)}?consistency=${isLocal ? "local" : "linearizable"}`, signal);
    if (isLocal && found.freshness.isStale) {
      const asked = await get(pathOf(key), signal).catch(() => null);
      isLocal = asked === null;
      found = asked ?? found;
    }
    answer = found;
    if (!isSilent()) lags.add(found.set.replicas);
    showHead(found);
    showReplicas(found.set);
    ordersOf(orders, key, found.set, signal, () => { renewSet(); renewHistory(); });
  }
  const reignsKnown = new Map(), lags = trend();
  async function loadHistory() {
    const page = await get(`${pathOf(key)}/history?limit=${reignsKnown.size ? REIGNS_SHOWN : REIGNS_KNOWN}&consistency=local`, signal);
    for (const row of page.rows) reignsKnown.set(row.masterEpoch, row);
    showReigns({ ...page, rows: page.rows.slice(0, REIGNS_SHOWN) });
  }
  const renewSet = paced(loadSet, 200, signal), renewHistory = paced(loadHistory, HISTORY_PAUSE_MS, signal);

  // A controller that is silent is asked by every tick again; what it said last has the age of its answer.
  const path = pathOf(key);
  const oldMs = () => ageOf(`${path}?consistency=local`) || silentMs();
  const title = (look) => h("h1", { id: "of" }, key.name, " ", isSilent() ? h("span", { class: "badge none" }, lastly(look[2], oldMs())) : badge(look));

  function showHead({ freshness, set }) {
    const look = mood(set.view.condition, set.problems);
    put(head, title(look),
      h("p", { class: "read" }, readAt(freshness, heardAt(isLocal ? `${path}?consistency=local` : path)), freshness.isStale ? h("strong", { class: "warn" }, " · nobody leads with authority: this may be old") : ""),
      set.problems.length ? h("ul", { class: "problems" }, set.problems.map((code) => h("li", { title: code }, h("span", { class: "shape", "aria-hidden": "true" }, "▲ "), problemWords(code), alarmOf(code) ? h("span", { class: "hint" }, " alarm ", h("code", null, alarmOf(code)), ", what to do: ", h("code", null, `docs/alarms.md#${alarmOf(code).toLowerCase()}`)) : null))) : null,
      set.view.conditionReason && set.view.condition !== "serving" ? h("p", null, set.view.conditionReason) : null,
      set.pause ? h("p", { class: "warn" }, `‖ Elections are paused until ${utc(set.pause.expiresAtMs)} by ${set.pause.pausedBy}${set.pause.reason ? `: ${set.pause.reason}` : ""}`) : null,
      h("dl", { class: "facts" }, [["masterEpoch", number(set.view.masterEpoch)], ["SyncStateSet", `${labels(key, set.view.syncStateSet)} epoch ${set.view.syncStateSetEpoch}`], ["may lose", `${set.failureBudget} more ${set.failureBudget === 1 ? "replica" : "replicas"}`], ["acknowledged by", `${set.view.configuration.ackMode}`], ["last election", ago(set.lastElectionMs)]].map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));
  }

  // Of a set that nobody has opened before its controller fell silent: its line of the fleet's page.
  function showLine({ line, atMs }) {
    put(head, h("h1", { id: "of" }, key.name, " ", h("span", { class: "badge none" }, lastly(mood(line.condition, line.problems)[2], Date.now() - atMs))),
      line.problems.length ? h("ul", { class: "problems" }, line.problems.map((code) => h("li", null, problemWords(code)))) : null,
      h("dl", { class: "facts" }, [["masterEpoch", number(line.masterEpoch)], ["master", line.master === null ? "none" : labelled(line.master, line.masterName)], ["in sync", `${line.inSync} of ${line.expected}`], ["alive", `${line.alive} of ${line.registered}`], ["may lose", `${line.failureBudget} more`], ["last election", ago(line.lastElectionMs)]].map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));
    put(replicas, h("p", { class: "empty" }, "Its replicas were not read before this controller fell silent; they are shown as soon as it answers."));
    put(orders);
  }

  function showReplicas(set) {
    const ends = set.replicas.flatMap((one) => [one.minOffset, one.maxOffset]).filter((value) => value !== null);
    const low = Math.min(...ends), high = Math.max(...ends);
    put(replicas, table("Replicas", COLUMNS, set.replicas.map((one) => {
      const isGone = !one.isAlive;
      return h("tr", { "data-replica": one.brokerId, class: isGone ? "bad" : one.isInSync ? "" : "warn" }, cells(COLUMNS, [
        labelled(one.brokerId, one.name),
        roleOf(one),
        one.isSuspect ? "▲ suspect" : one.isInSync ? "● yes" : "○ no",
        number(one.maxOffset),
        extent(one, low, high),
        number(one.confirmOffset),
        one.isMaster ? "—" : [one.lagBytes === null ? "unknown" : size(one.lagBytes), one.catchUp ? h("span", { class: "hint" }, one.catchUp.bytesPerS === null ? " catching up" : ` ${size(one.catchUp.bytesPerS)}/s${one.catchUp.leftS === null ? ", no nearer" : `, ${duration(one.catchUp.leftS * 1e6)} left`}`) : null, lags.picture(one.brokerId)],
        age(one.seenAgeMs === null ? null : one.seenAgeMs + (isSilent() ? oldMs() : 0)),
        h("a", { href: hostLink(hostOf(one.address)) }, one.address),
        one.zone || "—",
      ]));
    })));
  }

  function showReigns(page) {
    const longest = Math.max(1, ...page.rows.map((row) => row.totalUs ?? 0));
    put(reigns, page.rows.length ? [h("p", { class: "outages" }, outagesText([...reignsKnown.values()])), legend(), table("Reigns, newest first", REIGNS, page.rows.map((row) => h("tr", { "data-epoch": row.masterEpoch }, cells(REIGNS, [
      h("a", { href: `${setLink(key)}/epoch/${row.masterEpoch}`, "data-key": `epoch-${row.masterEpoch}` }, number(row.masterEpoch)),
      when(row.electedAtMs), row.kind, `${row.fromMaster === null ? "none" : label(key, row.fromMaster)} → ${label(key, row.toMaster)}`,
      bar(row, longest),
      h("data", { value: row.totalUs ?? "", class: "us" }, outageText(row)),
      row.lossBytes === null ? "unknown" : size(row.lossBytes),
      row.grade ?? "none yet", row.cause,
    ])))), stopsOf(key, page)] : h("p", { class: "empty" }, "No election is on record here."));
  }

  let drawn = [];
  const unfolded = new Set();
  function drawEvents(fresh = []) {
    drawn = [...drawn, ...fresh].slice(-EVENTS);
    put(events, drawn.length ? eventList(drawn, unfolded, new Set(fresh)) : h("li", { class: "empty" }, "Nothing yet."));
  }
  const unlisten = listen((records) => {
    const own = records.filter(isOwn);
    if (!own.length) return;
    drawEvents(own);
    renewSet();
    renewHistory();
  });
  const timer = setInterval(renewSet, SOFT_MS);
  signal.addEventListener("abort", () => { unlisten(); clearInterval(timer); });
  watch((_, changes) => {
    if (!answer) return;
    showHead(answer);
    if (changes) showReplicas(answer.set);
  }, signal);
  await loadSet().catch((error) => {
    const known = lineOf(key);
    if (!isSilent() || !known) throw error;
    showLine(known);
  });
  const newest = await get(`/v1/events?newest=true&limit=${EVENTS}&set=${encodeURIComponent(`${key.cluster}/${key.name}`)}`, signal).catch((error) => {
    if (!isSilent()) throw error;
    return { events: recent.filter(isOwn).slice(-EVENTS) };
  });
  const last = newest.events.at(-1);
  drawn = [...newest.events, ...drawn.filter((one) => !last || one.index > last.index || (one.index === last.index && one.ordinal > last.ordinal))];
  drawEvents();
  await loadHistory().catch((error) => put(reigns, isSilent() ? h("p", { class: "empty" }, "Not read before this controller fell silent.") : problemBox(error)));
}

// Its role on record, and what it says of itself where that is another thing.
function roleOf(one) {
  const [shape, role] = one.isMaster ? ["◆ ", "master"] : one.isLearner ? ["◌ ", "learner"] : ["○ ", "slave"];
  const state = one.maintenance && !one.isMaster ? "maintenance" : !one.isAlive ? "gone" : one.state ?? "state unknown";
  return [h("span", { "aria-hidden": "true", class: "shape" }, state === "gone" ? "✕ " : shape), role, state === role || (one.isLearner && state === "slave") ? "" : `, ${state}`];
}

// Where a log begins and ends among those of its set: the same scale for all, the newest bytes at the right.
function extent(one, low, high) {
  if (one.maxOffset === null) return h("span", { class: "hint" }, "not heard");
  const span = Math.max(1, high - low), at = (offset) => (100 * (offset - low)) / span;
  const isEmpty = one.maxOffset <= (one.minOffset ?? 0);
  const begin = at(one.minOffset ?? low), end = high === low ? 100 : at(one.maxOffset);
  return svg("svg", { class: "extent", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": isEmpty ? "empty" : `from ${number(one.minOffset ?? 0)} to ${number(one.maxOffset)}` },
    svg("rect", { x: 0, y: 4, width: 100, height: 2, class: "track" }),
    isEmpty ? null : svg("rect", { x: begin.toFixed(2), y: 2, width: Math.max(0.8, end - begin).toFixed(2), height: 6, class: one.isInSync ? "held" : "held behind" }),
    isEmpty || one.confirmOffset === null ? null : svg("rect", { x: (high === low ? 99.2 : Math.min(99.2, at(Math.max(low, one.confirmOffset)))).toFixed(2), y: 0, width: 0.8, height: 10, class: "confirmed" }));
}

function stopsOf(key, page) {
  const undone = page.switchovers.filter((row) => row.end !== "done");
  if (!page.stops.length && !undone.length) return null;
  return h("ul", { class: "stops" },
    page.stops.map((stop) => h("li", null, `■ ${utc(stop.beganAtMs)}: master ${label(key, stop.brokerId)} of epoch ${stop.masterEpoch} acknowledged no write (${stop.reason}${stop.detail ? `: ${stop.detail}` : ""}) for `, stop.stoppedUs === null ? "a time that is not known" : h("data", { value: stop.stoppedUs }, duration(stop.stoppedUs)), stop.end === null ? "; it goes on" : "")),
    undone.map((row) => h("li", null, `◇ ${utc(row.orderedAtMs)}: switchover ${label(key, row.fromMaster)} → ${label(key, row.toMaster)} by ${row.requestedBy}: ${row.end ?? "under way"}${row.reason ? `: ${row.reason}` : ""}`)));
}
