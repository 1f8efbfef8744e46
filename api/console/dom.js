// Elements out of values. Text is text: nothing here, and nothing elsewhere, makes markup of a string.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element && element.tagName !== "DATA") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false && one !== ""));
  return element;
}

export const h = (name, properties, ...children) => fill(document.createElement(name), properties, children);
export const svg = (name, properties, ...children) => fill(document.createElementNS(SVG, name), properties, children);

// Puts new children in, and leaves the focus where it was if the element under it has a key.
export function put(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset?.key : undefined;
  parent.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  if (focused) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

export function say(text) {
  document.getElementById("said").textContent = text;
}

// A table with a caption for those who hear it; a column is [title, class].
export function table(caption, columns, rows, properties) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", properties,
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", null, rows)));
}

export const cells = (columns, values) => values.map((value, place) => h("td", { class: columns[place][1], "data-title": columns[place][0] }, value));
