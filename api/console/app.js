// Signing in, the address, and which view is shown. Every fact on every page is an answer of /v1: the console knows no rule.

import { get, hasToken, learnRole, Problem, signIn, signOut } from "./api.js";
import { h, put, say } from "./dom.js";
import { fleet } from "./fleet.js";
import { begin as beginSilence, consoleOf, CONTROLLERS, controllers, kept, silentMs, watch, whole } from "./known.js";
import { begin } from "./live.js";
import { problemBox, readAgo } from "./words.js";

const main = document.getElementById("main");
const link = document.getElementById("link");
const nav = document.getElementById("nav");
const leave = document.getElementById("leave");
const away = document.getElementById("away");
const awayFor = h("span");
let isBlank = false; // the view of this address has had nothing to show
let session = null; // aborted at sign-out
let view = null; // aborted when another view is shown

const LAZY = {
  set: () => import("./set.js"),
  hosts: () => import("./hosts.js"),
  timeline: () => import("./timeline.js"),
  standing: () => import("./standing.js"),
  audit: () => import("./audit.js"),
  topics: () => import("./consuming.js").then((found) => ({ show: found.topics })),
  groups: () => import("./consuming.js").then((found) => ({ show: found.groups })),
};

async function show() {
  view?.abort();
  view = new AbortController();
  const mine = view;
  isBlank = false;
  const [path, query] = (location.hash.slice(1) || "/fleet").split("?");
  const [, name, ...parts] = path.split("/").map(decodeURIComponent);
  for (const anchor of nav.querySelectorAll("a")) {
    if (anchor.hash === `#/${name}` || (name === "set" && anchor.hash === "#/fleet")) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  const parameters = new URLSearchParams(query ?? "");
  try {
    if (name === "fleet" || !LAZY[name]) {
      document.title = "Fleet · Rollcall";
      await fleet(main, parameters, view.signal);
    } else {
      const module = await LAZY[name]();
      if (mine.signal.aborted) return;
      await module.show(main, parts, parameters, view.signal);
    }
  } catch (error) {
    if (mine.signal.aborted || error.name === "AbortError") return;
    if (error instanceof Problem && error.status === 401) return ask(error);
    isBlank = true;
    put(main, problemBox(error));
  }
}

function moved() {
  window.scrollTo(0, 0);
  show().then(() => main.focus({ preventScroll: true }));
}

function ask(error) {
  session?.abort();
  view?.abort();
  nav.hidden = leave.hidden = true;
  link.textContent = "";
  document.title = "Sign in · Rollcall";
  const field = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
  put(main, h("form", { class: "sign-in", "aria-labelledby": "sign-in", onsubmit: (event) => {
    event.preventDefault();
    signIn(field.value);
    enter();
  } },
    h("h1", { id: "sign-in" }, "Sign in"),
    h("p", null, "Show a token of this fleet. A viewer's lets you look, an operator's act."),
    h("label", { for: "token" }, "Token"), field,
    h("button", { type: "submit", class: "main" }, "Sign in"),
    error && hasToken() ? problemBox(error) : null,
    h("p", { class: "hint" }, "An admin issues one: ", h("code", null, "rollcall tokens issue --role viewer --name NAME --out FILE"), ". It stays in this tab and is gone when you close it. A browser with a client certificate of the fleet needs none.")));
  field.focus();
}

async function enter() {
  session?.abort();
  session = new AbortController();
  try {
    await Promise.all([begin(heard, session.signal), learnRole(session.signal)]);
  } catch (error) {
    if (error instanceof Problem && (error.status === 401 || error.status === 403)) return ask(error);
    put(main, problemBox(error), h("button", { type: "button", onclick: enter }, "Try again"));
    setTimeout(() => { if (!session.signal.aborted) enter(); }, 3000);
    return;
  }
  nav.hidden = false;
  get("/v1/overview?limit=1&consistency=local", session.signal).then((page) => { document.getElementById("fleet-name").textContent = page.fleetName; }).catch(() => {});
  leave.hidden = !hasToken();
  beginSilence();
  await show();
  // For when this controller falls silent: the other views, which it could not give any more, and where the others are.
  if (!kept(CONTROLLERS)) get(CONTROLLERS, session.signal).catch(() => {});
  for (const load of Object.values(LAZY)) load().catch(() => {});
}

watch((isSilent, changes) => {
  document.body.classList.toggle("silent", isSilent);
  away.hidden = !isSilent || !hasBegun();
  awayFor.textContent = whole(silentMs());
  if (!changes) return;
  say(isSilent ? "This controller does not answer. What is shown is what it said last." : "This controller answers again");
  if (!isSilent) return isBlank ? show() : undefined;
  const own = kept(CONTROLLERS)?.body.readFrom;
  const others = controllers().filter((one) => one.name !== own && consoleOf(one));
  put(away, h("p", null, h("strong", null, `■ ${own ?? "This controller"} does not answer`), " since ", awayFor, ". What is shown is what it said last; it is asked again."),
    others.length ? h("p", null, "Consoles of the other controllers, where you sign in again: ", others.map((one) => [h("a", { href: consoleOf(one), "data-console": one.name }, one.name), "  "])) : null);
});
const hasBegun = () => !nav.hidden;
setInterval(() => { for (const one of document.querySelectorAll("[data-read]")) one.textContent = readAgo(Number(one.dataset.read)); }, 1000);

function heard(state, error) {
  const isAway = state !== "live";
  if (error instanceof Problem && error.status === 401) return ask(error);
  if (link.dataset.state === state) return;
  link.dataset.state = state;
  put(link, h("span", { "aria-hidden": "true" }, isAway ? "◌ " : "● "), isAway ? "not live: trying again" : "live");
}

leave.addEventListener("click", () => {
  signOut();
  say("Signed out");
  ask();
});
document.getElementById("theme").addEventListener("click", () => {
  const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address behind # names a view
  main.focus();
});
addEventListener("hashchange", moved);
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    const field = document.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  }
});
enter();
