// What is known, as the stream has told it, and what is wanted to be seen of it.

import { stateNames } from './words.js';

export const model = { workers: new Map(), picks: [], events: [], at: 0, whole: null };

// take brings the model up to date. See update in stream.go.
export function take(update) {
  if (update.whole) {
    if (model.whole && model.whole.page !== update.whole.page) location.reload(); // the server has a newer page
    model.whole = update.whole;
    model.workers.clear();
    model.picks = [];
    model.events = [];
  }
  const { samples } = model.whole;
  Object.assign(model, { at: update.at, level: update.level, headline: update.headline, policy: update.policy, fleet: update.fleet, learned: update.learned });
  for (const id of update.gone || []) model.workers.delete(id);
  update.rows.forEach((row, i) => {
    const old = model.workers.get(row.id);
    row.history = update.whole ? update.whole.history[i] : old ? old.history : [];
    row.words = words(row);
    model.workers.set(row.id, row);
  });
  if (!update.whole) {
    for (const w of model.workers.values()) {
      w.history.push(w.depth ?? null);
      if (w.history.length > samples) w.history.shift();
    }
  }
  for (const w of model.workers.values()) w.calm = mean(w.history.slice(-10));
  model.picks = update.picks.concat(model.picks).slice(0, model.whole.picks);
  const changed = new Set(update.events.map(e => e.id));
  model.events = update.events.concat(model.events.filter(e => !changed.has(e.id))).slice(0, model.whole.events);
}

// findable is all of a worker that a filter looks at.
export const findable = w => [w.id, w.state, stateNames[w.state], w.words, ...(w.notes || []).map(n => n.name)].join('\n').toLowerCase();

function words(w) {
  if (w.notes) return w.notes.map(n => n.text).join('; ');
  return w.state === 'trusted' ? '' : w.reason || stateNames[w.state] || w.state;
}

export function mean(list) {
  const known = list.filter(x => x !== null);
  return known.length ? known.reduce((a, b) => a + b) / known.length : 0;
}

export const age = w => w.reported ? Math.max(model.at - w.reported, 0) : undefined;
export const reportedDepth = w => (w.running ?? 0) + (w.waiting ?? 0);
export const group = w => w.state !== 'trusted' ? w.state : w.notes ? 'attention' : 'trusted';

// wanted stands in the address, so that it can be sent to somebody.
export const wanted = { q: '', state: '', sort: 'worst', up: false, worker: '', tab: 'workers' };

export function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1));
  for (const k of ['q', 'state', 'worker']) wanted[k] = p.get(k) || '';
  wanted.tab = p.get('tab') || 'workers';
  const sort = p.get('sort') || 'worst';
  wanted.up = sort.startsWith('-');
  wanted.sort = sort.replace('-', '');
}

let changed = () => {};

// whenWanted has a function called with what is wanted anew.
export function whenWanted(f) { changed = f; }

export function want(changes) {
  Object.assign(wanted, changes);
  const p = new URLSearchParams();
  for (const k of ['q', 'state', 'worker']) if (wanted[k]) p.set(k, wanted[k]);
  if (wanted.tab !== 'workers') p.set('tab', wanted.tab);
  if (wanted.sort !== 'worst' || wanted.up) p.set('sort', (wanted.up ? '-' : '') + wanted.sort);
  history.replaceState(null, '', '#' + p);
  changed(changes);
}
