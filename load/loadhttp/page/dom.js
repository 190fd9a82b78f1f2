// Making elements and changing them. Everything that comes from a worker is put in as
// text.

export const $ = id => document.getElementById(id);

// make returns a new element: make('td', 'c-kv', child or text, ...).
export function make(name, className, ...children) {
  const el = document.createElement(name);
  if (className) el.className = className;
  el.append(...children);
  return el;
}

export function svg(name, attributes, ...children) {
  const el = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [k, v] of Object.entries(attributes)) el.setAttribute(k, v);
  el.append(...children);
  return el;
}

// What is already there is left alone: the page is drawn once a second, and most of it
// is as before.
export function text(el, value) { if (el.textContent !== value) el.textContent = value; }
export function attr(el, name, value) { if (el.getAttribute(name) !== value) el.setAttribute(name, value); }
export function size(el, side, share) {
  const value = (100 * Math.min(Math.max(share, 0), 1)).toFixed(1) + '%';
  if (el.style[side] !== value) el.style[side] = value;
}

// keyed makes the children of el those that stand for the items, and keeps those that
// are there. fill is called for each.
export function keyed(el, items, key, create, fill) {
  const have = new Map([...el.children].map(c => [c.key, c]));
  const keep = new Set(items.map(key));
  for (const [k, c] of have) if (!keep.has(k)) c.remove();
  let at = el.firstChild;
  for (const item of items) {
    let c = have.get(key(item));
    if (!c) {
      c = create(item);
      c.key = key(item);
    }
    if (c === at) at = at.nextSibling;
    else el.insertBefore(c, at);
    fill(c, item);
  }
}

export function facts(el, list) {
  while (el.children.length > 2 * list.length) el.lastChild.remove();
  while (el.children.length < 2 * list.length) el.append(make('dt'), make('dd'));
  list.forEach(([name, value], i) => { text(el.children[2 * i], name); text(el.children[2 * i + 1], value); });
}
