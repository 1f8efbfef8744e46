// Names of brokers, learned of every answer that has them.
//
// The name stands first, the id behind it (controller/contract/labels.py): ids are given in the order of arrival, machines and
// units know the name alone, and by the id the wrong one is stopped. A broker of RocketMQ has no name.

const names = new Map(); // "cluster/set" -> Map of id -> name
const learners = new Set();
const textOf = (key) => `${key.cluster}/${key.name}`;

function take(set, found) {
  const known = names.get(set) ?? new Map();
  const isNew = !names.has(set) || Object.entries(found).some(([id, name]) => name && known.get(String(id)) !== name);
  for (const [id, name] of Object.entries(found)) if (name) known.set(String(id), name);
  names.set(set, known);
  if (isNew) for (const learner of learners) learner(set);
}
const isTable = (value) => typeof value === "object" && value !== null;

// Any answer of /v1 at `path`.
export function learn(path, body) {
  const [, cluster, name] = path.match(/^\/v1\/sets\/([^/?]+)\/([^/?]+)/)?.map(decodeURIComponent) ?? [];
  const own = cluster && textOf({ cluster, name });
  if (own && body.set) take(own, Object.fromEntries(body.set.replicas.map((one) => [one.brokerId, one.name])));
  const told = Object.entries(body.names ?? {});
  if (own && told.length && !isTable(told[0][1])) take(own, body.names);
  for (const [set, found] of told) if (isTable(found)) take(set, found);
}
export function learnEvent({ event, setKey }) {
  if (event.kind === "owner-bound" && setKey) take(textOf(setKey), { [event.brokerId]: event.owner });
}
export const onLearned = (work) => learners.add(work);
export const isKnown = (key) => names.has(textOf(key));

export const labelled = (id, name) => (name ? `${name} (${id})` : String(id));
export const label = (key, id) => labelled(id, key ? names.get(textOf(key))?.get(String(id)) : "");
export function labels(key, ids) {
  const told = ids.map((id) => label(key, id));
  return `{${told.join(told.some((one) => one.endsWith(")")) ? ", " : ",")}}`;
}
