// Plots and small parts, built node by node: whatever a server says is only ever text.

export const STEPS = 60;
const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (`class`, `title`, ...) and children, of which strings are text. */
export function el(tag, attributes = {}, ...children) {
  return put(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return put(document.createElementNS(SVG, tag), attributes, children);
}

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function frame(label, ...children) {
  const box = { viewBox: `0 0 ${STEPS} 100`, preserveAspectRatio: "none", role: "img" };
  return svg("svg", { ...box, "aria-label": label }, ...children);
}

/** Columns of stacked parts: `columns` are lists of numbers, `classes` names each part's colour.
    `most` is the height of a full column; without it each column is full. */
export function stacked(columns, classes, label, most = null) {
  const parts = [];
  columns.forEach((column, place) => {
    const whole = most ?? column.reduce((sum, value) => sum + value, 0);
    let below = 100;
    column.forEach((value, part) => {
      if (!value || !whole) return;
      const height = (100 * value) / whole;
      below -= height;
      const at = { x: place + 0.06, y: below.toFixed(2), width: 0.88, height: height.toFixed(2) };
      parts.push(svg("rect", { ...at, class: classes[part] }));
    });
  });
  return frame(label, ...parts);
}

/** A line through the last STEPS values; `most` is the top. */
export function line(values, most, label) {
  const start = STEPS - values.length;
  const points = values.map((value, place) => {
    const height = 96 - (92 * Math.min(value, most)) / most;
    return `${start + place + 0.5},${height.toFixed(1)}`;
  });
  return frame(label, svg("polyline", { points: points.join(" ") }));
}

/** A bar from 0 to 1, with a mark where `mark` is given. */
export function meter(share, mark = null) {
  const bar = el("i");
  bar.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
  const node = el("div", { class: "meter", "aria-hidden": "true" }, bar);
  if (mark !== null) {
    const tick = el("u");
    tick.style.left = `${100 * mark}%`;
    node.append(tick);
  }
  return node;
}

/** Seconds in the unit that reads best. */
export function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

export function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}%`;
}
