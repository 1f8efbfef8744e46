// How far each replica was behind in the last two minutes: what this page saw itself, kept as long as it is open, and no longer.

import { svg } from "./dom.js";
import { whole } from "./known.js";
import { size } from "./words.js";

const KEPT_MS = 120000, POINTS_MAX = 240;
const WIDTH = 120, HEIGHT = 16;

export function trend() {
  const seen = new Map(); // broker id -> [[ms, bytes behind or null], ...], the oldest first
  return {
    add(replicas) {
      const now = Date.now();
      for (const one of replicas) {
        const points = seen.get(one.brokerId) ?? [];
        points.push([now, one.isMaster ? null : one.lagBytes]);
        while (points.length > POINTS_MAX || now - points[0][0] > KEPT_MS) points.shift();
        seen.set(one.brokerId, points);
      }
    },
    // The newest at the right. Where it was not told, or was master, the line has a gap. Each replica has a scale of its own: the
    // words say which.
    picture(id) {
      const points = seen.get(id) ?? [], told = points.filter(([, lag]) => lag !== null);
      if (told.length < 2) return null;
      const most = Math.max(...told.map(([, lag]) => lag)), end = points.at(-1)[0];
      const x = (ms) => (WIDTH - (WIDTH * (end - ms)) / KEPT_MS).toFixed(1), y = (lag) => (HEIGHT - 1.5 - ((HEIGHT - 3) * lag) / Math.max(1, most)).toFixed(1);
      const line = points.map(([ms, lag], place) => (lag === null ? "" : `${place && points[place - 1][1] !== null ? "L" : "M"} ${x(ms)} ${y(lag)}`)).join(" ");
      const words = `behind within ${whole(end - told[0][0])}: at most ${size(most)}, now ${size(points.at(-1)[1])}`;
      return svg("svg", { class: "trend", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words }, svg("title", null, words),
        svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1, class: "lane" }), svg("path", { d: line }));
    },
  };
}
