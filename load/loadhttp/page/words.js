// What things are called, and how numbers are written. A name that is not here is shown
// as it is, whatever it is: __proto__ keeps out those that every object has.

export const stateNames = {
  __proto__: null,
  dead: 'dead', stale: 'stale', never_reported: 'never heard', no_answer: 'no answer', unhealthy: 'out of rotation',
  set_aside: 'set aside', booting: 'booting', not_publishing: 'not publishing', no_feed: 'no feed', trusted: 'trusted',
};
export const stateOrder = Object.keys(stateNames);
export const noteNames = { __proto__: null, kv_full: 'KV cache full' };
export const reasonNames = {
  __proto__: null,
  least_waiting: 'least expected wait', least_waiting_away: 'least expected wait, outside of our slice',
  turn: 'its turn', chance: 'drawn at random', least_loaded: 'least loaded', less_loaded_of_two: 'less loaded of two',
  imbalance: 'least loaded: loads diverge', no_match: 'least loaded: little of the prompt is cached anywhere',
  prefix_owner: 'has the longest prefix cached', pinned: 'the request asked for it',
};
export const outNames = {
  __proto__: null,
  not_healthy: 'out of rotation', set_aside: 'set aside', not_listed: 'not among the candidates', excluded: 'excluded',
  filtered_out: 'filtered out', lacks_rank: 'without the rank', not_drawn: 'not drawn',
};
export const basisNames = { __proto__: null, engine: '', estimated: 'estimated: not trusted', local: 'own requests only', none: '' };
// The summands of a cost: their words, their unit, and their colour, 0 to 7.
export const terms = {
  __proto__: null,
  own_tokens: ['our prompts there', 'tokens', 0], others_tokens: ['others’ prompts there', 'tokens', 1],
  prompt_tokens: ['this prompt', 'tokens', 2], own_requests: ['our requests there', '', 3],
  others_requests: ['others’ requests there', '', 4], request: ['this request', '', 5],
  kv_full: ['KV cache nearly full', '', 6], kv_tokens_over: ['tokens beyond the KV cache', '', 6],
  away: ['longer waits abroad', '', 7], bias: ['outside of our slice', '', 7],
};

export const number = n => n === undefined || n === null ? '–' : n.toLocaleString('en');
export const percent = (x, digits = 0) => x === undefined || x === null ? '–' : (100 * x).toFixed(digits) + ' %';
export const clockTime = t => new Date(t).toLocaleTimeString([], { hourCycle: 'h23' });
export const bare = text => text.replace(/https?:\/\//g, '');

export function decimals(x) { return x >= 100 || x === 0 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2); }

export function seconds(ms) {
  const s = ms / 1000;
  if (s < 60) return s.toFixed(1) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min';
  return s < 172800 ? Math.floor(s / 3600) + ' h' : Math.floor(s / 86400) + ' d';
}

export function duration(ns) {
  const us = Math.abs(ns) / 1000;
  const [value, unit] = us < 1000 ? [us, 'µs'] : us < 1e6 ? [us / 1000, 'ms'] : [us / 1e6, 's'];
  return (ns < 0 ? '−' : '') + Number(value.toPrecision(3)) + ' ' + unit;
}
