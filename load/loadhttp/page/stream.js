// The stream of updates, and what is done when it breaks.

import { $, text, attr } from './dom.js';
import { clockTime, seconds } from './words.js';
import { model, take } from './model.js';

let draw = () => {};
const link = { source: null, tries: 0, retry: 0, watchdog: 0, heard: 0, lostAt: 0, nextAt: 0 };

function setLink(state, words) {
  attr($('link'), 'data-link', state);
  text($('link').lastChild, words);
  document.body.classList.toggle('lost', state === 'lost');
  $('lost').hidden = state !== 'lost';
}

function connect() {
  disconnect();
  link.source = new EventSource('stream');
  link.watchdog = setTimeout(lose, 15000);
  link.source.onmessage = m => {
    take(JSON.parse(m.data));
    link.tries = link.lostAt = 0;
    link.heard = Date.now();
    clearTimeout(link.watchdog);
    // A connection can be dead without anybody having said so.
    link.watchdog = setTimeout(lose, 3 * model.whole.interval + 5000);
    setLink('live', 'live · ' + clockTime(model.at));
    draw();
  };
  link.source.onerror = lose;
}

function disconnect() {
  clearTimeout(link.retry);
  clearTimeout(link.watchdog);
  if (link.source) link.source.close();
  link.source = null;
}

// lose tries again by and by: after a second, then two, up to half a minute, and not all
// viewers at once.
function lose() {
  disconnect();
  link.lostAt ||= Date.now();
  const wait = Math.min(1000 * 2 ** link.tries++, 30000) * (.8 + .4 * Math.random());
  link.nextAt = Date.now() + wait;
  link.retry = setTimeout(connect, wait);
  sayLost();
}

function sayLost() {
  if (!link.lostAt) return;
  setLink('lost', 'disconnected');
  document.title = 'disconnected: ' + (model.whole ? model.whole.title : 'no picture yet');
  const from = link.heard ? `What you see is of ${clockTime(model.at)}, ${seconds(Date.now() - link.heard)} ago. ` : '';
  const next = link.source ? 'Trying …' : `Next try in ${Math.max(0, Math.ceil((link.nextAt - Date.now()) / 1000))} s.`;
  text($('lost').firstElementChild, `Disconnected. ${from}${next}`);
}

// watch keeps the model up to date while somebody can see the page, and has it drawn.
export function watch(drawModel) {
  draw = drawModel;
  $('lost').lastElementChild.onclick = connect;
  addEventListener('online', () => { if (link.lostAt) connect(); });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) {
      connect();
      return;
    }
    disconnect();
    link.lostAt = link.tries = 0;
    setLink('paused', 'paused');
  });
  setInterval(sayLost, 1000);
  connect();
}
