// What is lost with a host: every host, the worst first; or (hosts/HOST) each set that has a replica there.

import { cells, h, put, table } from "./dom.js";
import { isSilent } from "./known.js";
import { listen, paced } from "./live.js";
import { beginMaintenance } from "./orders.js";
import { everyLine, LINES_MAX } from "./whole.js";
import { badge, copyButton, hostLink, keyText, lately, number, problemBox, setLink } from "./words.js";

const HOSTS = [["Host", "name"], ["Masters", "n"], ["Sets", "n"], ["Would stop", "n"], ["Would have no spare", "n"], ["If it goes", "wide"]];
const SETS = [["Set", "name"], ["Master", ""], ["In sync elsewhere", "n"], ["Candidates elsewhere", "n"], ["If the host goes", "wide"]];
const PAUSE_MS = 5000, LOOK_MS = 30000; // between two looks at the whole fleet: any event may change it, silence of a heartbeat is none
const RANKS = ["bad", "warn", "good"];
const sets = (count) => `${number(count)} ${count === 1 ? "set" : "sets"}`;

// What a set does without a host, by the facts of its line (controller/contract/hosts.py).
function without(line, share) {
  if (line.condition !== "serving") return ["bad", "■", "does not serve now"];
  if (share.goesOn) return share.spare ? ["good", "●", `goes on, and may lose ${number(share.spare)} more`] : ["warn", "▲", "goes on, and may lose no other"];
  if (share.hasMaster && line.isPaused) return ["bad", "■", "stops: its elections are paused"];
  if (share.hasMaster && !share.heirs) return ["bad", "■", "stops: nobody elsewhere may be elected"];
  return ["bad", "■", `refuses writes: ${number(share.left)} in sync are too few`];
}

export async function show(main, [host], query, signal) {
  document.title = `${host ?? "Hosts"} · Rollcall`;
  const verdict = h("p", { class: "lead" }), limit = h("p", { class: "warn" }), trouble = h("div"), body = h("div");
  put(main, host ? h("nav", { "aria-label": "Where", class: "where" }, h("a", { href: "#/hosts" }, "Hosts"), " / ", host) : null,
    h("section", { class: "head" }, h("h1", null, host ?? "Hosts"), verdict, h("p", { class: "read" }, "By what is known now, of a host that goes at once; a stop that is ordered first loses less."), limit),
    host ? [h("p", { class: "orders" }, h("button", { type: "button", onclick: () => beginMaintenance({ host }, host) }, "Begin its maintenance…")), h("p", { class: "typed" }, h("code", { title: "which masters would be moved, and where" }, `rollcall drain ${host} --dry-run`), copyButton("Copy", () => `rollcall drain ${host} --dry-run`))] : null,
    trouble, body);
  function draw(lines) {
    const rows = lines.flatMap((line) => line.hosts.map((share) => ({ line, share, look: without(line, share) })));
    const worst = rows.toSorted((a, b) => RANKS.indexOf(a.look[0]) - RANKS.indexOf(b.look[0]));
    // What is left out in silence would look as if it bore the loss of any host.
    put(limit, lines.length < LINES_MAX ? "" : `Of the ${number(LINES_MAX)} worst sets of the fleet.`);
    const stopped = ({ line, look }) => line.condition === "serving" && look[0] === "bad";
    if (host) {
      const own = worst.filter(({ share }) => share.host === host), stops = own.filter(stopped).length;
      put(verdict, own.length ? (stops ? `${sets(stops)} of ${number(own.length)} would stop with it.` : `No set would stop with it; ${sets(own.length)} ${own.length === 1 ? "has" : "have"} a replica there.`) : "No replica has an address there.");
      return put(body, own.length ? table(`Sets with a replica on ${host}`, SETS, own.map(({ line, share, look }) => h("tr", { "data-set": keyText(line.setKey), class: look[0] }, cells(SETS, [
        h("a", { href: setLink(line.setKey), "data-key": keyText(line.setKey) }, keyText(line.setKey)), share.hasMaster ? "◆ here" : "elsewhere", number(share.left), number(share.heirs), badge(lately(look))])))) : null);
    }
    const hosts = [...Map.groupBy(worst, ({ share }) => share.host)].map(([name, own]) => ({ name, own, stops: own.filter(stopped).length, bare: own.filter(({ look }) => look[0] === "warn").length }))
      .sort((a, b) => b.stops - a.stops || b.bare - a.bare || (a.name < b.name ? -1 : 1));
    put(verdict, hosts.length ? `${number(hosts.length)} ${hosts.length === 1 ? "host has" : "hosts have"} replicas of ${sets(lines.length)}.` : "No set is registered.");
    put(body, hosts.length ? table("Hosts, the worst first", HOSTS, hosts.map(({ name, own, stops, bare }) => h("tr", { "data-host": name, class: stops ? "bad" : bare ? "warn" : "good" }, cells(HOSTS, [
      h("a", { href: hostLink(name), "data-key": name }, name), number(own.filter(({ share }) => share.hasMaster).length), number(own.length), number(stops), number(bare),
      badge(lately(stops ? ["bad", "■", `${sets(stops)} ${stops === 1 ? "stops" : "stop"}`] : bare ? ["warn", "▲", `all go on, ${number(bare)} without a spare`] : ["good", "●", "all go on"]))])))) : null);
  }
  async function load() {
    try {
      draw(await everyLine(signal, "&hosts=true"));
      put(trouble);
    } catch (error) {
      if (!signal.aborted && !(isSilent() && body.children.length)) put(trouble, problemBox(error));
    }
  }
  const renew = paced(load, PAUSE_MS, signal);
  const unlisten = listen(renew);
  const timer = setInterval(renew, LOOK_MS);
  signal.addEventListener("abort", () => { unlisten(); clearInterval(timer); });
  await load();
}
