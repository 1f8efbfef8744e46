// Orders about topics and groups. The masters of the sets carry them out, each in its own log: one outcome for each set.

import { h } from "./dom.js";
import { order } from "./orders.js";
import { keyText } from "./words.js";

const PERMISSIONS = ["read-write", "read", "write", "none"];
const QUEUES_MAX = 256, RETRIES_MAX = 2147483647;

const label = (id, words, field) => [h("label", { for: id }, words), field];
const input = (id, properties) => h("input", { id, type: "text", autocomplete: "off", spellcheck: "false", ...properties });
const whole = (id, min, max, more) => input(id, { type: "number", min, max, step: "1", ...more });
const choice = (id, options) => h("select", { id }, options.map(([value, words]) => h("option", { value }, words)));
const unless = (id, rest) => choice(id, [["", rest], ["yes", "yes"], ["no", "no"]]);
const flag = (field) => (field.value ? field.value === "yes" : null);
const count = (field) => (field.value === "" ? null : Number(field.value));

// Options of the command line: those of fields that are left as they are, are left out.
const typedAs = (option, field) => (field.value === "" ? [] : [option, field.value]);
const flagAs = (option, field) => (field.value === "" ? [] : [field.value === "yes" ? `--${option}` : `--no-${option}`]);

// In which sets: all, or one of those that were shown.
function setsField(rows) {
  const keys = rows.map((row) => row.setKey), field = choice("sets", [["", "every set"], ...keys.map((key, place) => [place, `${keyText(key)} only`])]);
  return [keys.length > 1 ? label("sets", "In", field) : null, () => (field.value === "" ? [] : [keys[Number(field.value)]])];
}

function give(kind, name, verb, { title, words, rows, fields, body, done, typed = () => [] }) {
  const [field, sets] = setsField(rows);
  order({ title, words, fields: [fields, field], isOfSets: true, path: () => `/v1/${kind}/${encodeURIComponent(name())}/${verb}`, body: () => ({ ...body(), sets: sets() }), done: () => done,
    command: () => [kind, verb, name() || "NAME", ...typed(), ...sets().flatMap((key) => ["--set", keyText(key)])] });
}

export function makeTopic() {
  const name = input("name", { required: true, maxlength: 127 }), queues = whole("queues", 1, QUEUES_MAX, { value: 8, required: true }), permission = choice("permission", PERMISSIONS.map((one) => [one, one]));
  give("topics", () => name.value.trim(), "create", { title: "Make a topic", words: "It is made in every set; a set that has it refuses.", rows: [],
    fields: [label("name", "Name", name), label("queues", "Queues", queues), label("permission", "Permission", permission)],
    body: () => ({ queues: Number(queues.value), permission: permission.value }), typed: () => [...typedAs("--queues", queues), ...typedAs("--permission", permission)], done: "the topic is there" });
}

function changeTopic(name, found) {
  const queues = whole("queues", 1, QUEUES_MAX, { placeholder: "as it is" }), permission = choice("permission", [["", "as it is"], ...PERMISSIONS.map((one) => [one, one])]);
  give("topics", () => name, "change", { title: `Change topic ${name}`, words: "Clients hear of it when they ask for the route the next time.", rows: found.topics,
    fields: [label("queues", "Queues", queues), label("permission", "Permission", permission)],
    body: () => ({ queues: count(queues), permission: permission.value || null }), typed: () => [...typedAs("--queues", queues), ...typedAs("--permission", permission)], done: "the topic is changed" });
}

const deleteTopic = (name, found) => give("topics", () => name, "delete", { title: `Delete topic ${name}`, rows: found.topics, body: () => ({}), done: "the topic is deleted",
  words: `Nobody sends to ${name} or reads it any more. Its messages stay until their age, and an order alone makes it again.` });

// Settings of a group, which `rest` says of where none is given.
function groupSettings(rest) {
  const retries = whole("retries", 0, RETRIES_MAX, { placeholder: rest }), [consume, broadcast, ordered] = ["consume", "broadcast", "ordered"].map((id) => unless(id, rest));
  return { fields: [label("retries", "Retries", retries), label("consume", "May consume", consume), label("broadcast", "May broadcast", broadcast), label("ordered", "Ordered", ordered)],
    body: () => ({ retriesMax: count(retries), mayConsume: flag(consume), mayBroadcast: flag(broadcast), isOrdered: flag(ordered) }),
    typed: () => [...typedAs("--retries", retries), ...flagAs("consume", consume), ...flagAs("broadcast", broadcast), ...flagAs("ordered", ordered)] };
}

export function makeGroup() {
  const name = input("name", { required: true, maxlength: 255 }), settings = groupSettings("as usual");
  give("groups", () => name.value.trim(), "create", { ...settings, title: "Make a group", words: "It is made in every set, before its first member; a set that has it refuses.", rows: [],
    fields: [label("name", "Name", name), settings.fields], done: "the group is there" });
}

const changeGroup = (name, found) => give("groups", () => name, "change", { ...groupSettings("as it is"), title: `Settings of group ${name}`, rows: found.groups,
  words: "A message that is refused once more than its retries is a dead letter. A group that may not consume is given nothing.", done: "the settings hold" });

function resetGroup(name, found) {
  const topics = [...new Set(found.queues.map((row) => row.topic))].sort();
  const topic = choice("topic", topics.map((one) => [one, one])), to = choice("to", [["time", "the first message of a time or later"], ["0", "the first message that is there"], ["-1", "behind all that are there"]]);
  const at = input("at", { type: "datetime-local", step: "1", value: new Date(Date.now() - 3600000).toISOString().slice(0, 19) });
  give("groups", () => name, "reset", { title: `Reset group ${name}`, rows: found.groups,
    words: "Its members go on there: what lies behind it is given again, what lies before it is passed over.",
    fields: [label("topic", "Topic", topic), label("to", "To", to), label("at", "Time (UTC)", at)],
    body: () => ({ topic: topic.value, toMs: to.value === "time" ? Date.parse(`${at.value}Z`) : Number(to.value) }), done: "the group goes on there",
    typed: () => [topic.value, "--to", { time: `${at.value}Z`, 0: "first", "-1": "last" }[to.value]] });
}

function deleteGroup(name, found) {
  const keeps = h("input", { type: "checkbox", id: "keeps" });
  give("groups", () => name, "delete", { title: `Delete group ${name}`, rows: found.groups,
    words: "Its settings and offsets are forgotten: if it comes back, it begins where a new group does.",
    fields: h("label", { class: "check" }, keeps, " but keep its offsets: it goes on where it was"), body: () => ({ keepsOffsets: keeps.checked }), typed: () => (keeps.checked ? ["--keep-offsets"] : []), done: "the group is forgotten" });
}

// The buttons of a page: words, and what each asks for.
export const TOPIC_ORDERS = [["Change…", changeTopic], ["Delete…", deleteTopic]];
export const GROUP_ORDERS = [["Settings…", changeGroup], ["Reset…", resetGroup], ["Delete…", deleteGroup]];
