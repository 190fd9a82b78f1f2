// The page of package loadhttp: how it is drawn, and what a person does with it.

import { $, make, text, attr } from './dom.js';
import { stateNames, stateOrder, number, decimals, bare } from './words.js';
import { model, wanted, want, whenWanted, readAddress, group } from './model.js';
import { startTable, arrange, drawTable, release } from './table.js';
import { drawPicks, drawEvents, drawLearned } from './side.js';
import { drawDetail } from './detail.js';
import { watch } from './stream.js';

function drawTop() {
  const f = model.fleet;
  attr(document.body, 'data-level', model.level);
  text($('headline'), bare(model.headline));
  text($('title'), model.whole.title);
  const wrong = f.workers - f.trusted;
  document.title = (wrong ? `(${wrong}) ` : '') + model.whole.title;
  const colour = { ok: '%231a7f37', warn: '%23e0a100', out: '%238a939d', bad: '%23c4232b' }[model.level];
  attr($('icon'), 'href', `data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="${colour}"/></svg>`);

  text($('t-trusted'), `${number(f.trusted)} / ${number(f.workers)}`);
  $('t-trusted').className = model.level === 'bad' ? 'hot' : '';
  text($('t-running'), number(f.running));
  text($('t-waiting'), number(f.waiting));
  text($('t-mean'), decimals(f.mean_depth));
  text($('t-flight'), number(f.in_flight));
  text($('t-picks'), decimals(f.picks_per_second));
  const gateways = model.learned ? ` · ≈ ${Number(model.learned.replicas.toPrecision(2))} gateway${model.learned.replicas < 1.5 ? '' : 's'}` : '';
  text($('t-policy'), (model.policy || '–') + gateways);
  text($('since'), 'history and events since ' + new Date(model.whole.since).toLocaleString());
}

function drawTools() {
  const counts = new Map([['', model.workers.size]]);
  for (const w of model.workers.values()) counts.set(group(w), (counts.get(group(w)) || 0) + 1);
  if (wanted.state && !counts.has(wanted.state)) counts.set(wanted.state, 0);
  const order = ['', ...stateOrder.slice(0, -1), 'attention', 'trusted'];
  const place = s => order.includes(s) ? order.indexOf(s) : order.length;
  const keys = [...counts.keys()].sort((a, b) => place(a) - place(b));
  const box = $('chips');
  while (box.children.length < keys.length) box.append(make('button', '', make('span'), ' ', make('b')));
  while (box.children.length > keys.length) box.lastChild.remove();
  keys.forEach((key, i) => {
    const chip = box.children[i];
    chip.type = 'button';
    chip.dataset.state = key;
    attr(chip, 'data-level', key ? levelOf(key) : 'none');
    attr(chip, 'aria-pressed', String(key === wanted.state));
    text(chip.firstChild, key === '' ? 'all' : key === 'attention' ? 'worth a look' : key === 'trusted' ? 'fine' : stateNames[key] || key);
    text(chip.lastChild, number(counts.get(key)));
  });
  for (const th of $('head').children) {
    if (th.key === wanted.sort) attr(th, 'aria-sort', wanted.up ? 'ascending' : 'descending');
    else th.removeAttribute('aria-sort');
  }
  $('sort').value = wanted.sort;
  for (const b of $('tabs').children) attr(b, 'aria-pressed', String(b.dataset.tab === wanted.tab));
  attr(document.body, 'data-tab', wanted.tab);
}

function levelOf(state) {
  if (state === 'attention') return 'warn';
  for (const w of model.workers.values()) if (w.state === state && !w.notes) return w.level;
  return 'ok';
}

let drawn = 0;

// draw draws everything with the next frame.
function draw() {
  if (!model.whole || drawn) return;
  drawn = requestAnimationFrame(() => {
    drawn = 0;
    drawTop();
    drawTools();
    arrange();
    drawTable();
    drawPicks();
    drawEvents();
    drawLearned();
    drawDetail();
  });
}

function start() {
  startTable();
  const read = () => { readAddress(); $('filter').value = wanted.q; };
  read();
  addEventListener('hashchange', () => { read(); draw(); });
  whenWanted(changes => {
    if (!('worker' in changes)) release(); // another order is wanted now
    draw();
  });
  const clear = changes => { $('filter').value = ''; want({ q: '', ...changes }); };
  $('sort').onchange = e => want({ sort: e.target.value, up: false });
  $('filter').oninput = e => want({ q: e.target.value });
  $('chips').onclick = e => {
    const chip = e.target.closest('button');
    if (chip) want({ state: chip.dataset.state });
  };
  $('none').lastElementChild.onclick = () => clear({ state: '' });
  $('tabs').onclick = e => { if (e.target.dataset.tab) want({ tab: e.target.dataset.tab }); };
  addEventListener('keydown', e => {
    if (e.key === 'Escape') {
      if (wanted.worker) want({ worker: '' });
      else if (e.target === $('filter')) clear();
    } else if (e.key === '/' && !/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) {
      e.preventDefault();
      $('filter').focus();
    }
  });
  watch(draw);
}

start();
