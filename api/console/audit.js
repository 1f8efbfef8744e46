// Who asked for what: the orders of people, with how each was proven and from where. The record is hash-chained.

import { get } from "./api.js";
import { cells, h, put, table } from "./dom.js";
import { listen } from "./live.js";
import { callerText, keyText, number, refOf, told, utc } from "./words.js";

const COLUMNS = [["When", "when"], ["Who", ""], ["From", ""], ["Set", ""], ["What", "wide"], ["Event", ""]];
const PEOPLE = new Set(["viewer", "operator", "admin"]);
const PAGES = 40;

const isOfPeople = (record) => (record.principal ? PEOPLE.has(record.principal.role) : /^(admin|operator):?/.test(record.requestedBy));

export async function show(main, parts, query, signal) {
  document.title = "Audit · Rollcall";
  const name = h("input", { type: "search", id: "filter", placeholder: "name, or role:name", autocomplete: "off", value: query.get("by") ?? "" });
  const body = h("div");
  const read = h("p", { class: "read", role: "status" });
  put(main, h("section", { class: "head" }, h("h1", null, "Who asked for what"), read),
    h("form", { class: "filters", role: "search", onsubmit: (event) => { event.preventDefault(); load(); } }, h("label", { for: "filter" }, "By"), name, h("button", { type: "submit" }, "Search the record")), body);
  let records = [], turn = 0;
  function draw() {
    put(body, records.length ? table("Orders, newest first", COLUMNS, records.toReversed().map((record) => h("tr", { "data-ref": refOf(record) }, cells(COLUMNS, [
      utc(record.stampedAtMs), callerText(record), record.principal?.address || "—", keyText(record.setKey), [h("b", null, record.event.kind), " ", told(record.event, record.setKey)], h("code", null, refOf(record))])))) : h("p", { class: "empty" }, "No order of a person is on record here."));
  }
  async function load() {
    const mine = ++turn, by = name.value.trim();
    history.replaceState(null, "", by ? `#/audit?by=${encodeURIComponent(by)}` : "#/audit");
    if (!by) {
      const page = await get("/v1/events?newest=true&limit=500", signal);
      records = page.events.filter(isOfPeople);
      put(read, `${number(records.length)} orders of people among the newest ${number(page.events.length)} events; a name searches the whole record.`);
      return draw();
    }
    records = [];
    let from = "", found = null;
    for (let page = 0; page < PAGES && mine === turn; page++) {
      found = await get(`/v1/events?by=${encodeURIComponent(by)}&limit=500${from ? `&from=${from}` : ""}`, signal);
      records.push(...found.events);
      put(read, `${number(records.length)} so far…`);
      if (!found.nextFrom) break;
      from = `${found.nextFrom.term}.${found.nextFrom.index}.${found.nextFrom.ordinal}`;
    }
    if (mine !== turn) return;
    records = records.slice(-2000);
    put(read, `${number(records.length)} events that ${by} asked for${found?.nextFrom ? "; the record goes on" : ""}${found?.gap ? `; ${found.gap}` : ""}`);
    draw();
  }
  const unlisten = listen((fresh) => {
    const by = name.value.trim();
    const own = fresh.filter((record) => (by ? callerText(record).includes(by) : isOfPeople(record)));
    if (own.length) { records.push(...own); draw(); }
  });
  signal.addEventListener("abort", unlisten);
  await load();
}
