// One worker: what the table has no room for.

import { $, make, facts } from './dom.js';
import { stateNames, noteNames, number, percent, decimals, seconds } from './words.js';
import { model, wanted, want } from './model.js';
import { newLine, drawLine } from './table.js';

let asking = false, returnTo = null;

// drawDetail asks for all that is known of one worker, while somebody wants to see it.
export async function drawDetail() {
  const el = $('detail');
  if (!wanted.worker) {
    if (!el.hidden && returnTo && returnTo.isConnected) returnTo.focus();
    el.hidden = true;
    el.replaceChildren();
    return;
  }
  if (asking) return;
  asking = true;
  const id = wanted.worker;
  try {
    const answer = await fetch('status.json?history=1&worker=' + encodeURIComponent(id));
    const { workers } = await answer.json();
    if (wanted.worker === id) fillDetail(el, id, workers[0]);
  } catch {
    // The stream says that the server is gone.
  } finally {
    asking = false;
    if (wanted.worker !== id) drawDetail();
  }
}

function fillDetail(el, id, w) {
  const opening = el.hidden || el.shown !== id;
  if (opening) {
    const close = make('button', 'close', '×');
    close.type = 'button';
    close.title = 'Close (Esc)';
    close.onclick = () => want({ worker: '' });
    const heading = make('h2', '', id);
    heading.id = 'd-id';
    el.replaceChildren(make('header', '', heading, close), make('div'));
    if (el.hidden) returnTo = document.activeElement;
    el.hidden = false;
    el.shown = id;
    close.focus({ preventScroll: true });
  }
  const selection = getSelection();
  if (!opening && !selection.isCollapsed && el.contains(selection.anchorNode)) return; // somebody copies
  const box = make('div');
  el.lastChild.replaceWith(box);
  if (!w) {
    box.append(make('p', 'say', 'It is not in the table any more.'));
    return;
  }
  const say = (level, title, ...lines) => {
    const p = make('div', 'say', make('b', '', title), ...lines.filter(Boolean).map(l => make('p', '', l)));
    p.dataset.level = level;
    box.append(p);
  };
  say(w.notes ? 'ok' : w.level, capital(stateNames[w.state] || w.state), w.reason, w.advice);
  for (const n of w.notes || []) say('warn', capital(noteNames[n.name] || n.name), n.text);

  const most = Math.max(1, ...w.history), known = w.history.some(d => d !== null);
  const line = newLine();
  drawLine(line, w.history, most);
  const span = seconds(model.whole.samples * model.whole.interval);
  box.append(make('h3', '', known ? `Depth, to ${number(most)}` : 'Depth: not known'), line, make('div', 'axis', make('span', '', span + ' ago'), make('span', '', 'now')));

  const list = make('dl', 'facts');
  facts(list, [
    ['running + waiting', w.running === null ? 'unknown' : `${number(w.running)} + ${number(w.waiting)}` + (w.trusted ? '' : ', last known')],
    ['prompt tokens waiting', w.waiting_tokens === null ? 'unknown' : number(w.waiting_tokens)],
    ['age of the oldest report', (w.running === null ? 'none' : seconds(w.age_ns / 1e6)) + (w.owned ? '; all its requests are ours, so that none is needed' : '')],
    ['ours in flight', `${number(w.in_flight)}, ${number(w.since_report)} of them not in its report yet`],
    ['ours without a first token', `${number(w.unstarted)}, with ${number(w.pending_tokens)} prompt tokens`],
    ['our picks', `${number(w.picked)}, now ${decimals(w.picks_per_second)}/s: ${percent(w.share, 2)} of all`],
    ['speed, as learned', w.speed === null ? 'not known' : `× ${w.speed.toFixed(2)} of the average`],
    ['explained picks', chances(id)],
    ...(w.leaked ? [['leaked', `${number(w.leaked)} picks were dropped without Done, which is a mistake in the gateway`]] : []),
  ]);
  box.append(list);

  if (w.ranks.length) box.append(make('h3', '', `Ranks (${w.advertised_ranks} advertised)`), make('div', 'wide', rankTable(w)));
  const troubles = ranksByTrouble(w.ranks);
  if (troubles.length) box.append(make('ul', '', ...troubles.map(t => make('li', '', t))));
  const json = make('a', '', 'JSON');
  json.href = 'status.json?history=1&worker=' + encodeURIComponent(id);
  box.append(make('p', '', json));
}

const capital = s => s[0].toUpperCase() + s.slice(1).replaceAll('_', ' ');

function chances(id) {
  const seen = model.picks.filter(p => p.best.some(c => c.worker === id));
  if (!model.picks.length) return 'none yet';
  return `of the last ${model.picks.length}: chosen in ${seen.filter(p => p.worker === id).length}, among the best in ${seen.length}`;
}

function rankTable(w) {
  const cell = (...c) => make('td', '', ...c);
  const head = ['rank', 'running', 'waiting', 'tokens', 'KV', 'age', 'ours', 'source', 'reports', 'dropped'];
  return make('table', '', make('thead', '', make('tr', '', ...head.map(h => make('th', '', h)))), make('tbody', '', ...w.ranks.map(r => {
    const report = r.report || {};
    const kv = report.kv_usage ?? (report.kv_capacity ? report.kv_used / report.kv_capacity : undefined);
    const drops = Object.values(r.dropped || {}).reduce((a, b) => a + b, 0);
    return make('tr', '', cell(String(r.rank)), cell(number(report.running)), cell(number(report.waiting)), cell(number(report.waiting_tokens)),
      cell(percent(kv)), cell(make('span', r.fresh ? '' : 'hot', r.report ? seconds(r.age_ns / 1e6) : 'never')), cell(number(r.in_flight)),
      cell(report.source || '–'), cell(number(r.reports)), cell(make('span', drops ? 'warm' : '', number(drops))));
  })));
}

// ranksByTrouble says a thing once, however many ranks it is said of.
function ranksByTrouble(ranks) {
  const of = new Map();
  for (const r of ranks) for (const t of rankTroubles(r)) of.set(t, [...of.get(t) || [], r.rank]);
  return [...of].map(([t, some]) => `${some.length === ranks.length && some.length > 1 ? 'every rank' : 'rank ' + some.join(', ')}: ${t}`);
}

function rankTroubles(r) {
  const list = [];
  for (const [reason, n] of Object.entries(r.dropped || {})) list.push(`${number(n)} messages dropped, ${reason}`);
  if (r.last_drop) list.push(`the last one was dropped because of ${r.last_drop}`);
  if (r.flawed) list.push(`${number(r.flawed)} reports had something impossible in them`);
  if (r.never_nonzero && r.reports > 20) list.push(`always 0 or unknown: ${r.never_nonzero.join(', ')}`);
  return list;
}
