// The whole fleet at once: one cell for each set, the worst first, and what many of them have in common.

import { get } from "./api.js";
import { h } from "./dom.js";
import { keyText, lately, mood, number, problemWords, setLink } from "./words.js";

export const MANY = 20; // sets; fewer are seen in the table itself
const PAGE = 500, PAGES_MAX = 4;
export const LINES_MAX = PAGE * PAGES_MAX;
const COMMON = 3, CAUSES_MAX = 3;

// The lines of all sets, the worst first; of a fleet beyond the limit the worst ones. `more`: what else is asked of each.
export async function everyLine(signal, more = "") {
  const lines = [];
  for (let after = "", page = 0; page < PAGES_MAX; page++) {
    const found = await get(`/v1/overview?order=worst&limit=${PAGE}&consistency=local${more}${after && `&after=${encodeURIComponent(after)}`}`, signal);
    lines.push(...found.sets);
    if (!(after = found.nextAfter)) break;
  }
  return lines;
}

// One stop of Tab for all cells; the arrows go on from there.
export function mapOf(lines, total) {
  const place = h("nav", { class: "map", "aria-label": `Map of ${number(total)} sets, the worst first`, onkeydown: (event) => {
    const cells = [...place.querySelectorAll("a")], at = cells.indexOf(document.activeElement);
    const wide = cells.findIndex((one) => one.offsetTop > cells[0].offsetTop);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide < 0 ? 0 : wide, ArrowUp: wide < 0 ? 0 : -wide, Home: -at, End: cells.length - 1 - at }[event.key];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    cells[at + step]?.focus();
  } }, lines.map((line, number_) => {
    const look = lately(mood(line.condition, line.problems));
    const words = [`${keyText(line.setKey)}: ${look[2]}`, ...line.problems.map(problemWords)].join("; ");
    return h("a", { href: setLink(line.setKey), class: `cell ${look[0]}`, title: words, "aria-label": words, tabindex: number_ ? -1 : 0, "data-key": `cell-${keyText(line.setKey)}` }, look[1]);
  }), total > lines.length ? h("span", { class: "hint" }, ` and ${number(total - lines.length)} more`) : null);
  return place;
}

// Twenty equal rows are one fault: said once, above them. An overview has the reason of a condition, and no host.
export function causesOf(lines) {
  const found = Map.groupBy(lines.filter((line) => mood(line.condition, line.problems)[0] === "bad"), (line) => line.conditionReason);
  const common = [...found].filter(([reason, those]) => reason && those.length >= COMMON).sort((a, b) => b[1].length - a[1].length);
  return common.slice(0, CAUSES_MAX).map(([reason, those]) => h("p", { class: "cause" }, h("strong", { class: "bad" }, `■ ${number(those.length)} sets, one cause: `), reason));
}
