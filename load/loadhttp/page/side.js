// What stands beside the table: explained picks, events, what the policy has learned.

import { $, make, text, attr, size, keyed, facts } from './dom.js';
import { stateNames, reasonNames, outNames, basisNames, terms, number, clockTime, bare, decimals, duration } from './words.js';
import { model, want } from './model.js';

let pinned = 0; // the pick that is shown; 0: the newest

// drawPicks leaves them as they are while somebody points at them: he reads, or is about to
// click. A finger points at nothing.
export function drawPicks() {
  if (!$('pick').shown || !matchMedia('(hover: hover)').matches || !$('picks').matches(':hover')) showPicks();
}

function showPicks() {
  const box = $('picks');
  box.querySelector('.empty').hidden = model.picks.length > 0;
  if (pinned && !model.picks.some(p => p.id === pinned)) pinned = 0;
  const pick = model.picks.find(p => p.id === pinned) || model.picks[0];
  if (pick) drawPick($('pick'), pick);
  keyed($('picklist'), model.picks, p => p.id, p => {
    const b = make('button', '', make('span', 'dim', clockTime(p.at)), make('span', '', p.worker ? bare(p.worker) : 'none'), make('span', 'dim', outcome(p)));
    b.type = 'button';
    b.title = `${p.worker || p.error}: ${reasonNames[p.reason] || p.reason}`;
    b.onclick = () => { pinned = p.id; showPicks(); };
    return make('li', '', b);
  }, (li, p) => attr(li.firstChild, 'aria-pressed', String(p === pick)));
}

function outcome(p) {
  const won = p.best.find(c => c.chosen);
  return !won ? '' : won.cost_ns ? duration(won.cost_ns) : 'load ' + won.load;
}

function drawPick(el, p) {
  if (el.shown === p && el.wasPinned === pinned) return;
  el.shown = p;
  el.wasPinned = pinned;
  const prompt = p.prompt_tokens === null ? 'prompt of unknown length' : `prompt of ${number(p.prompt_tokens)} tokens`;
  const who = p.worker ? [make('b', '', bare(p.worker)), (p.rank >= 0 ? ` rank ${p.rank}` : '') + ': ' + (reasonNames[p.reason] || p.reason)] : [make('b', 'hot', 'nothing picked: '), p.error];
  const tries = p.tries > 1 ? `, at the ${p.tries}. try` : '';
  el.replaceChildren(make('p', 'why', ...who, make('br'), make('span', 'dim', `${clockTime(p.at)} by ${p.policy}, ${prompt}, of ${p.compared} compared${tries}`)));

  const most = Math.max(1, ...p.best.map(c => c.cost_ns || 0)), mostLoad = Math.max(1, ...p.best.map(c => c.load));
  const used = new Map();
  for (const c of p.best) {
    const bar = make('div', 'bar');
    if (c.terms) {
      for (const t of c.terms) {
        const [name, unit, colour] = terms[t.name] || [t.name, '', 5];
        const part = make('i', 'c' + colour);
        part.title = `${name}: ${duration(t.cost_ns)}` + (unit ? ` (${number(Math.round(t.amount))} ${unit})` : '');
        size(part, 'width', t.cost_ns / most);
        bar.append(part);
        used.set(name, colour);
      }
    } else {
      const part = make('i', c.basis === 'engine' ? 'running' : 'past');
      size(part, 'width', c.load / mostLoad);
      bar.append(part);
    }
    const basis = c.reports === 'trusted' ? basisNames[c.basis] : stateNames[c.reports] || c.reports;
    const name = make('span', '', make('bdi', '', bare(c.worker) + (c.rank >= 0 ? ` rank ${c.rank}` : '')));
    name.title = c.worker;
    el.append(make('div', c.chosen ? 'cand won' : 'cand', name,
      make('span', '', c.cost_ns ? duration(c.cost_ns) : '', make('span', 'dim', ` load ${c.load}${basis ? ', ' + basis : ''}`)), bar));
  }
  const rest = Object.entries(p.out || {}).map(([why, n]) => `${n} ${outNames[why] || why}`);
  if (p.compared > p.best.length) rest.unshift(`${p.compared - p.best.length} more compared`);
  if (rest.length) el.append(make('p', 'dim', rest.join(', ')));
  if (used.size) el.append(make('div', 'legend', ...[...used].map(([name, colour]) => make('span', '', make('i', 'c' + colour), name))));
  if (pinned) {
    const follow = make('button', 'follow', 'show the newest again');
    follow.onclick = () => { pinned = 0; showPicks(); };
    el.append(follow);
  }
}

export function drawEvents() {
  const box = $('events');
  const empty = box.previousElementSibling;
  empty.hidden = model.events.length > 0;
  text(empty.querySelector('time'), clockTime(model.whole.since));
  keyed(box, model.events, e => e.id, e => {
    const what = make('div');
    if (e.worker) {
      const b = make('button', '', bare(e.worker));
      b.type = 'button';
      b.onclick = () => want({ worker: e.worker });
      what.append(b, ' ');
    } else {
      what.append(make('b', '', `${number(e.workers)} workers`), ' ');
    }
    what.append(make('span'));
    return make('li', '', make('time', 'dim'), what, make('small', 'dim'));
  }, (li, e) => {
    attr(li, 'data-level', e.level);
    text(li.children[0], clockTime(e.at));
    attr(li.children[0], 'title', e.at);
    text(li.children[1].lastChild, bare(e.text));
    text(li.children[2], e.count > 1 ? '× ' + e.count : '');
    attr(li.children[2], 'title', e.count > 1 ? `since ${clockTime(e.first)}` : '');
  });
}

export function drawLearned() {
  const l = model.learned;
  $('learned').previousElementSibling.hidden = !!l;
  facts($('learned'), !l ? [] : [
    ['a prompt token takes', duration(l.per_token_ns)],
    ['a first token takes besides', duration(l.base_ns)],
    ['a request there is worth', duration(l.per_request_ns)],
    ['mean time to first token', duration(l.first_token_ns)],
    ['mean time of an answer', duration(l.response_ns)],
    ['mean prompt', number(Math.round(l.prompt_tokens)) + ' tokens'],
    ['gateways', decimals(l.replicas)],
    ['others’ requests on a rank', decimals(l.others_requests)],
    ['bias of our slice', duration(l.bias_ns)],
    ['waits abroad are longer by', '× ' + decimals(l.away)],
  ]);
}
