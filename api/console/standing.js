// Orders that hold until a time: pauses of elections, maintenances.

import { get } from "./api.js";
import { cells, h, put, table } from "./dom.js";
import { listen, paced } from "./live.js";
import { beginMaintenance, endMaintenance, pause, resume } from "./orders.js";
import { number, scopeText, setLink, utc } from "./words.js";

const COLUMNS = [["What", "name"], ["Until", "when"], ["By", ""], ["Reason", "wide"], ["", "act"]];

export async function show(main, parts, query, signal) {
  document.title = "Pauses and maintenance · Rollcall";
  const body = h("div");
  let heard = 0; // index of the newest event that this view was told
  put(main, h("section", { class: "head" }, h("h1", null, "Pauses and maintenance"), h("p", { class: "read" }, "What people have set aside for a while. Each ends by itself.")), body);
  async function load() {
    const [held, paused] = await Promise.all([get("/v1/maintenance?consistency=local", signal), get("/v1/overview?problem=PAUSED&limit=100&consistency=local", signal)]);
    // An overview is shared for 250 ms: one of before the event that asks for it would stay here until the next event.
    if (paused.freshness.index < heard) renew();
    const fleet = paused.pause;
    put(body,
      h("h2", null, "Elections"),
      fleet ? h("p", { class: "warn" }, `‖ Elections of the fleet are paused until ${utc(fleet.expiresAtMs)} by ${fleet.pausedBy}${fleet.reason ? `: ${fleet.reason}` : ""} `) : h("p", null, "● Elections of the fleet are held."),
      h("p", { class: "orders" }, fleet ? h("button", { type: "button", onclick: () => resume(null) }, "Resume the fleet…") : h("button", { type: "button", onclick: () => pause(null) }, "Pause the fleet…")),
      paused.sets.length ? h("p", null, fleet ? "Sets under a pause, by the fleet's or their own: " : "Sets that are paused: ", paused.sets.slice(0, 50).map((one) => [h("a", { href: setLink(one.setKey) }, one.setKey.name), " "]), paused.setsMatching > 50 ? `and ${number(paused.setsMatching - 50)} more` : "") : null,
      h("h2", null, "Maintenance"),
      held.maintenances.length ? table("Maintenance", COLUMNS, held.maintenances.map((one) => h("tr", null, cells(COLUMNS, [scopeText(one.scope), utc(one.expiresAtMs), one.begunBy, one.reason || "—",
        h("button", { type: "button", "data-key": `end-${scopeText(one.scope)}`, onclick: () => endMaintenance(one.scope, scopeText(one.scope)) }, "End…")])))) : h("p", null, "● Nothing is in maintenance."),
      h("p", { class: "orders" }, h("button", { type: "button", onclick: () => beginMaintenance(null) }, "Begin maintenance of a host…")));
  }
  const renew = paced(load, 500, signal);
  const unlisten = listen((records) => {
    const own = records.filter((record) => /^(elections|maintenance)-/.test(record.event.kind));
    if (!own.length) return;
    heard = own.at(-1).index;
    renew();
  });
  signal.addEventListener("abort", unlisten);
  await load();
}
