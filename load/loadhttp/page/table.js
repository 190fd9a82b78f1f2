// The table of workers.

import { $, make, svg, text, attr, size } from './dom.js';
import { stateNames, stateOrder, number, percent, decimals, seconds, bare } from './words.js';
import { model, wanted, want, age, group, findable, reportedDepth, mean } from './model.js';

const levels = ['ok', 'warn', 'out', 'bad'];

// The columns: what they sort by, the highest first. Worst first is by level, then by
// state, then by the mean of the last samples, which does not jump about.
const columns = [
  { key: 'worst', name: 'Worker, worst first', cell: 'c-id', compare: (a, b) =>
    levels.indexOf(b.level) - levels.indexOf(a.level) || stateOrder.indexOf(a.state) - stateOrder.indexOf(b.state) || b.calm - a.calm },
  { key: 'name', name: 'Name', compare: (a, b) => byName(a, b) },
  { key: 'depth', name: 'Depth', cell: 'c-depth', value: w => w.depth ?? (w.running === undefined ? undefined : reportedDepth(w)) },
  { key: 'waiting', name: 'Waiting', value: w => w.waiting },
  { key: 'mean', name: 'History', cell: 'c-history', value: w => mean(w.history) },
  { key: 'rank', name: 'Ranks', cell: 'c-ranks', value: w => Math.max(0, ...w.ranks.map(r => r[0] + r[1])) },
  { key: 'kv', name: 'KV', cell: 'c-kv num', value: w => w.kv },
  { key: 'age', name: 'Age', cell: 'c-age num', value: age },
  { key: 'flight', name: 'In flight', cell: 'c-flight num', value: w => w.in_flight },
  { key: 'share', name: 'Picks', cell: 'c-share num', value: w => w.rate },
  { key: 'speed', name: 'Speed', cell: 'c-speed num', value: w => w.speed === undefined ? undefined : -w.speed },
];
const titles = {
  'c-depth': 'Requests at the worker: running + waiting, as its ranks last reported, and what we have sent since',
  'c-history': 'Depth over the last samples; red where it was not known',
  'c-ranks': 'Depth of each rank; red where its report is stale or missing',
  'c-kv': 'KV cache in use, of the fullest rank', 'c-age': 'Age of the oldest rank’s newest report',
  'c-flight': 'Own requests, picked and not done', 'c-share': 'Share of our picks, over about 15 s',
  'c-speed': 'How fast its first tokens come, next to the average worker, as the policy has learned',
};
const byName = (a, b) => a.id < b.id ? -1 : a.id > b.id ? 1 : 0;

function compare() {
  const column = columns.find(c => c.key === wanted.sort) || columns[0];
  const sign = wanted.up ? -1 : 1;
  return (a, b) => {
    if (column.compare) return sign * column.compare(a, b) || byName(a, b);
    const x = column.value(a), y = column.value(b);
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined) || byName(a, b); // last either way
    return sign * (y - x) || byName(a, b);
  };
}

let list = []; // the workers of the table, in its order
let touched = -Infinity; // when somebody last pointed at a row: it must not run away

// arrange finds the workers that are wanted, and their order.
export function arrange() {
  const terms = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = w => { const all = findable(w); return terms.every(t => all.includes(t)); };
  const fits = w => (!wanted.state || group(w) === wanted.state) && (!terms.length || found(w));
  const next = [...model.workers.values()].filter(fits).sort(compare());
  const held = performance.now() - touched < 3000 && list.length > 0;
  if (held) {
    const place = new Map(list.map((w, i) => [w.id, i]));
    next.sort((a, b) => (place.get(a.id) ?? 1e9) - (place.get(b.id) ?? 1e9));
  }
  list = next;
  text($('shown'), (list.length < model.workers.size ? number(list.length) + ' of ' : '') + number(model.workers.size) + (model.workers.size === 1 ? ' worker' : ' workers') + (held ? ', order held' : ''));
}

// release lets the order change.
export function release() { touched = -Infinity; }

// Only the rows in sight exist. They are kept in place, and given another worker when it
// is scrolled or sorted.
const slots = [];
const roomAbove = make('tr', 'room', make('td')), roomBelow = make('tr', 'room', make('td'));

function newSlot() {
  const bar = () => make('div', 'bar', make('i', 'running'), make('i', 'waiting'), make('i', 'sent'));
  const tr = make('tr', '',
    make('td', 'c-id', make('b'), make('small')),
    make('td', 'c-depth', make('span'), bar()),
    make('td', 'c-history', newLine()),
    make('td', 'c-ranks', make('div', 'ranks')),
    make('td', 'c-kv num', make('span'), make('div', 'meter', make('i'))),
    make('td', 'c-age num', make('span')),
    make('td', 'c-flight num', make('span'), make('small')),
    make('td', 'c-share num', make('span'), make('small')),
    make('td', 'c-speed num', make('span')));
  tr.tabIndex = 0;
  return tr;
}

export function drawTable() {
  const body = $('rows');
  const height = parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--row'));
  const above = -body.getBoundingClientRect().top;
  const inSight = Math.ceil(innerHeight / height) + 1, spare = 4;
  const from = Math.max(0, Math.min(Math.floor(above / height) - spare, list.length - inSight));
  const to = Math.min(list.length, Math.max(from, Math.floor(above / height)) + inSight + spare);
  if (!roomAbove.parentNode) body.append(roomAbove, roomBelow);
  while (slots.length < to - from) {
    const tr = newSlot();
    slots.push(tr);
    body.insertBefore(tr, roomBelow);
  }
  while (slots.length > to - from) slots.pop().remove();
  roomAbove.style.height = from * height + 'px';
  roomBelow.style.height = (list.length - to) * height + 'px';
  roomAbove.hidden = from === 0;
  roomBelow.hidden = to === list.length;
  const scale = scales();
  slots.forEach((tr, i) => drawRow(tr, list[from + i], scale));
  $('workers').classList.toggle('flat', scale.ranks <= 1);
  $('none').hidden = list.length > 0;
  text($('none').firstElementChild, model.workers.size ? 'No worker fits the filter.' : 'There are no workers.');
  $('none').lastElementChild.hidden = !model.workers.size;
}

// depthParts is what a depth is made of: running and waiting, as reported, and what we have
// sent since. Where all requests are ours it is what is in flight, whatever was reported.
function depthParts(w) {
  if (w.owned) return w.depth === undefined ? [] : [w.depth];
  if (w.running === undefined) return [];
  return w.since ? [w.running, w.waiting, w.since] : [w.running, w.waiting];
}

// Bars can be compared only on one scale. It is taken over all workers.
function scales() {
  const s = { depth: 1, history: 1, rank: 1, ranks: 1 };
  for (const w of model.workers.values()) {
    s.depth = Math.max(s.depth, depthParts(w).reduce((a, b) => a + b, 0));
    for (const d of w.history) if (d > s.history) s.history = d;
    s.ranks = Math.max(s.ranks, w.ranks.length);
    for (const r of w.ranks) s.rank = Math.max(s.rank, r[0] + r[1]);
  }
  return s;
}

function drawRow(tr, w, scale) {
  const [id, depth, line, ranks, kv, old, flight, share, speed] = tr.children;
  tr.worker = w.id;
  attr(tr, 'data-level', w.level);
  attr(tr, 'aria-selected', String(w.id === wanted.worker));
  text(id.firstChild, bare(w.id));
  attr(id, 'title', w.words ? w.id + '\n' + w.words : w.id);
  text(id.lastChild, w.words);

  const parts = depthParts(w);
  text(depth.firstChild, parts.length ? parts.map(number).join(' + ') : '–');
  depth.classList.toggle('past', w.depth === undefined && parts.length > 0);
  [...depth.lastChild.children].forEach((bar, i) => size(bar, 'width', (parts[i] ?? 0) / scale.depth));

  drawLine(line.firstChild, w.history, scale.history);
  drawRanks(ranks.firstChild, w.ranks, scale.rank);

  text(kv.firstChild, percent(w.kv));
  kv.firstChild.className = w.kv >= .95 ? 'hot' : '';
  size(kv.lastChild.firstChild, 'width', w.kv ?? 0);
  const ms = age(w), never = w.ranks.some(r => !r[2]) && w.state === 'never_reported';
  text(old.firstChild, never ? 'never' : ms === undefined ? '–' : seconds(ms));
  old.firstChild.className = w.state === 'stale' || w.state === 'never_reported' ? 'hot' : !w.owned && ms > model.whole.window * .75 ? 'warm' : '';
  text(flight.firstChild, number(w.in_flight));
  text(flight.lastChild, w.unstarted ? number(w.unstarted) + ' unstarted' : '');
  text(share.firstChild, percent(w.share, model.workers.size > 100 ? 2 : 1));
  text(share.lastChild, decimals(w.rate) + '/s');
  text(speed.firstChild, w.speed === undefined ? '–' : '×' + w.speed.toFixed(2));
  speed.firstChild.className = (w.notes || []).some(n => n.name === 'slow') ? 'warm' : '';
}

export function newLine() {
  return svg('svg', { class: 'line', preserveAspectRatio: 'none' },
    svg('path', { class: 'area' }), svg('path', {}), svg('path', { class: 'gap' }));
}

// drawLine draws a history so that the newest sample is at the right edge.
export function drawLine(el, history, most) {
  const width = model.whole.samples - 1;
  attr(el, 'viewBox', `0 0 ${width} 24`);
  const x = i => width - history.length + 1 + i;
  let line = '', area = '', gap = '', start = -1;
  for (let i = 0; i <= history.length; i++) {
    const d = history[i], known = d !== null && d !== undefined;
    if (known) {
      line += (start < 0 ? 'M' : 'L') + x(i) + ' ' + (23 - 22 * d / most).toFixed(1);
      if (start < 0) start = i;
      continue;
    }
    if (start >= 0) {
      area += line.slice(line.lastIndexOf('M')) + `L${x(i - 1)} 24L${x(start)} 24Z`;
      start = -1;
    }
    if (d === null) gap += `M${x(i) - 1} 23h1`;
  }
  [area, line, gap].forEach((d, i) => attr(el.children[i], 'd', d));
}

function drawRanks(el, ranks, most) {
  const columns = Math.min(ranks.length, 46); // as many as there is room for
  while (el.children.length < columns) el.append(make('i'));
  while (el.children.length > columns) el.lastChild.remove();
  for (let i = 0; i < columns; i++) {
    const some = ranks.slice(Math.floor(i * ranks.length / columns), Math.floor((i + 1) * ranks.length / columns));
    const bar = el.children[i];
    size(bar, 'height', Math.max(...some.map(r => r[0] + r[1])) / most);
    bar.className = some.every(r => r[3]) ? '' : 'old';
  }
}

// startTable makes the head, and listens to what is done with the rows.
export function startTable() {
  for (const c of columns) {
    $('sort').append(new Option(c.key === 'worst' ? 'worst first' : c.name, c.key));
    if (!c.cell) continue;
    const b = make('button', '', c.name);
    b.type = 'button';
    b.onclick = () => want(wanted.sort === c.key ? { up: !wanted.up } : { sort: c.key, up: false });
    const th = make('th', c.cell, b);
    th.scope = 'col';
    th.title = titles[c.cell.split(' ')[0]] || '';
    th.key = c.key;
    $('head').append(th);
  }
  const rows = $('rows');
  const open = tr => { if (tr && tr.worker) want({ worker: tr.worker === wanted.worker ? '' : tr.worker }); };
  rows.onclick = e => open(e.target.closest('tr'));
  rows.onkeydown = e => { if (e.key === 'Enter') open(e.target.closest('tr')); };
  for (const type of ['pointermove', 'pointerdown', 'wheel', 'focusin']) {
    rows.addEventListener(type, () => { touched = performance.now(); }, { passive: true });
  }
  const moved = () => { if (model.whole) requestAnimationFrame(drawTable); };
  addEventListener('scroll', moved, { passive: true });
  addEventListener('resize', moved);
}
