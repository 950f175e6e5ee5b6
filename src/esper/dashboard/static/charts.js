"use strict";
/* Charts as SVG: curves over rounds or epochs, dots in a plane, stacked bars, small curves. Every chart has a table. */

const MARKERS = ["circle", "square", "diamond", "triangle", "cross"];
const DASHES = [null, "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2", "5 5"];
const TABLE_ROWS = 60;

function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (!isNumber(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return null;
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

function scale(low, high, from, to, log) {
  const map = log ? Math.log : (value) => value;
  const [a, b] = [map(low), map(high)];
  return (value) => from + ((map(value) - a) / (b - a || 1)) * (to - from);
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const each of [1, 2, 5]) if (each * 10 ** power >= low && each * 10 ** power <= high) found.push(each * 10 ** power);
  }
  return found.length > 1 ? found : ticks(low, high, 4);
}

function frame(width, height, xs, ys, options) {
  /* Axes with their scales; `xs` and `ys` are extents. */
  const left = 54, right = width - 10, top = 10, bottom = height - 34;
  const log = Boolean(options.log && xs[0] > 0);
  const x = scale(xs[0], xs[1], left, right, log), y = scale(ys[0], ys[1], bottom, top);
  const node = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  for (const at of ticks(ys[0], ys[1], 4)) {
    node.append(draw("line", { class: "gridline", x1: left, x2: right, y1: y(at), y2: y(at) }),
      draw("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, options.yFormat(at)));
  }
  const marks = (log ? logTicks(xs[0], xs[1]) : ticks(xs[0], xs[1], width > 500 ? 8 : 5)).filter((at) => !options.whole || Number.isInteger(at));
  let free = -Infinity;
  for (const at of marks) {
    const text = (options.xFormat || figure3)(at), half = text.length * 3.4;
    if (x(at) - half < free) continue;
    free = x(at) + half + 6;
    node.append(draw("text", { x: Math.min(x(at), right - half), y: bottom + 15, "text-anchor": "middle" }, text));
  }
  node.append(draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    draw("text", { x: (left + right) / 2, y: height - 3, "text-anchor": "middle" }, options.xLabel || ""));
  return { node, x, y, left, right, top, bottom };
}

function path(xs, ys, x, y, steps) {
  let text = "", pen = false;
  ys.forEach((value, at) => {
    if (!isNumber(value)) { pen = false; return; }
    const [px, py] = [x(xs[at]).toFixed(1), y(value).toFixed(1)];
    if (!pen) text += `M${px} ${py}`;
    else text += steps ? `H${px}V${py}` : `L${px} ${py}`;
    pen = true;
  });
  return text;
}

function area(xs, low, high, x, y) {
  const places = xs.map((_, at) => at).filter((at) => isNumber(low[at]) && isNumber(high[at]));
  if (places.length < 2) return "";
  const up = places.map((at) => `${x(xs[at]).toFixed(1)} ${y(high[at]).toFixed(1)}`);
  const down = places.reverse().map((at) => `${x(xs[at]).toFixed(1)} ${y(low[at]).toFixed(1)}`);
  return `M${up.join("L")}L${down.join("L")}Z`;
}

function marker(kind, x, y, size, attributes) {
  const s = size;
  const shapes = {
    square: `M${x - s} ${y - s}h${2 * s}v${2 * s}h${-2 * s}Z`,
    diamond: `M${x} ${y - 1.3 * s}L${x + 1.3 * s} ${y}L${x} ${y + 1.3 * s}L${x - 1.3 * s} ${y}Z`,
    triangle: `M${x} ${y - 1.2 * s}L${x + 1.2 * s} ${y + s}L${x - 1.2 * s} ${y + s}Z`,
    cross: `M${x - s} ${y - s / 3}h${s * 0.7}v${-s * 0.7}h${s * 0.6}v${s * 0.7}h${s * 0.7}v${s * 0.66}h${-s * 0.7}v${s * 0.7}h${-s * 0.6}v${-s * 0.7}h${-s * 0.7}Z`,
  };
  return kind === "circle" ? draw("circle", { cx: x, cy: y, r: s, ...attributes }) : draw("path", { d: shapes[kind], ...attributes });
}

function legendOf(series) {
  return make("ul", { class: "legend" }, series.map((each) => make("li", {},
    draw("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, each.marker
      ? marker(each.marker, 13, 6, 4.5, { class: `f${each.colour}` })
      : draw("line", { x1: 0, x2: 26, y1: 6, y2: 6, class: `curve s${each.colour}`, "stroke-dasharray": each.dash })), each.name)));
}

function dataTable(title, xLabel, xs, series, format) {
  const step = Math.max(1, Math.ceil(xs.length / TABLE_ROWS));
  const rows = xs.map((_, at) => at).filter((at) => at % step === 0 || at === xs.length - 1);
  const columns = [[xLabel, (at) => shown(xs[at], figure3)], ...series.map((each) => [each.name, (at) => shown(each.y[at], format)])];
  const details = make("details", { "data-key": `table:${title}` }, make("summary", {}, "as a table"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(tableOf(step > 1 ? `${title}, every ${step}th row` : title, columns, rows));
  });
  return details;
}

function lineChart(width, title, xs, series, options) {
  /* `series`: {name, y, low, high, dash, colour, steps}; `options`: {xLabel, yFormat, limit, limitName, from, to}. */
  const all = series.flatMap((each) => [...each.y, ...(each.low || []), ...(each.high || [])]);
  const ys = extent([...all, ...(isNumber(options.limit) ? [options.limit] : []), ...(options.include || [])]);
  if (!ys || !xs.length) return make("figure", {}, make("figcaption", {}, title), make("p", { class: "soft" }, options.empty || "nothing was measured yet"));
  if (options.floor !== undefined) ys[0] = Math.max(ys[0], options.floor);
  series.forEach((each, at) => { each.colour ??= at % 8; each.dash ??= DASHES[at % 8]; });
  const from = options.from ?? xs[0], to = options.to ?? xs[xs.length - 1];
  const last = (each) => { const known = each.y.filter(isNumber); return known.length ? options.yFormat(known[known.length - 1]) : ABSENT; };
  const label = `${title}. ` + series.map((each) => `${each.name}: last ${last(each)}`).join("; ");
  const box = frame(width, options.height || 210, [from, to === from ? from + 1 : to], ys, { ...options, label, whole: options.whole ?? true });
  for (const each of series) {
    if (each.low) box.node.append(draw("path", { d: area(xs, each.low, each.high, box.x, box.y), class: `band f${each.colour}` }));
  }
  if (isNumber(options.limit)) {
    box.node.append(draw("line", { class: "limit", x1: box.left, x2: box.right, y1: box.y(options.limit), y2: box.y(options.limit) }));
  }
  for (const each of series) {
    box.node.append(draw("path", { d: path(xs, each.y, box.x, box.y, each.steps), class: `curve s${each.colour}`, "stroke-dasharray": each.dash }));
    each.y.forEach((value, at) => {
      const alone = isNumber(value) && !isNumber(each.y[at - 1]) && !isNumber(each.y[at + 1]);
      if (alone && !each.marker) box.node.append(marker("circle", box.x(xs[at]), box.y(value), 3.5, { class: `f${each.colour}` }));
    });
    if (each.marker) each.y.forEach((value, at) => { if (isNumber(value)) box.node.append(marker(each.marker, box.x(xs[at]), box.y(value), 3.5, { class: `f${each.colour}` })); });
  }
  const readout = make("p", { class: "readout", "aria-hidden": "true" });
  readAlong(box, xs, series, options, readout);
  return make("figure", {}, make("figcaption", {}, title), legendOf(series), box.node, readout,
    dataTable(title, options.xLabel || "x", xs, series, options.yFormat));
}

function readAlong(box, xs, series, options, readout) {
  const cross = draw("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
  box.node.append(cross);
  box.node.addEventListener("pointermove", (event) => {
    const bounds = box.node.getBoundingClientRect(), place = ((event.clientX - bounds.left) / bounds.width) * box.node.viewBox.baseVal.width;
    let best = 0;
    xs.forEach((value, at) => { if (Math.abs(box.x(value) - place) < Math.abs(box.x(xs[best]) - place)) best = at; });
    for (const name of ["x1", "x2"]) cross.setAttribute(name, box.x(xs[best]));
    cross.setAttribute("visibility", "visible");
    readout.textContent = `${options.xLabel || ""} ${figure3(xs[best])}: ` + series.map((each) => `${each.name} ${shown(each.y[best], options.yFormat)}`).join(", ");
  });
  box.node.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); readout.textContent = ""; });
}

function planeChart(width, title, groups, options) {
  /* `groups`: {name, dots: [[x, y]], mean: [x, y], colour, marker}; a staircase for the front. */
  const dots = groups.flatMap((each) => [...(each.dots || []), ...(each.mean ? [each.mean] : [])]);
  const ys = extent(dots.map((each) => each[1])), raw = extent(dots.map((each) => each[0]));
  if (!ys) return make("figure", {}, make("figcaption", {}, title), make("p", { class: "soft" }, options.empty || "nothing to compare yet"));
  const lows = dots.map((each) => each[0]).filter(isNumber);
  const xs = options.log && Math.min(...lows) > 0 ? [Math.min(...lows) / 1.08, Math.max(...lows) * 1.08] : raw;
  groups.forEach((each, at) => { each.colour ??= at % 8; each.marker ??= MARKERS[at % 5]; });
  const label = `${title}. ` + groups.filter((each) => each.mean).map((each) => `${each.name}: ${options.yFormat(each.mean[1])} at ${options.xFormat(each.mean[0])}`).join("; ");
  const box = frame(width, options.height || 240, xs, ys, { ...options, label });
  for (const each of groups) {
    for (const [px, py] of each.dots || []) {
      if (isNumber(px) && isNumber(py)) box.node.append(marker(each.marker, box.x(px), box.y(py), 2.6, { class: `dot f${each.colour}` }));
    }
  }
  if ((options.front || []).length) {
    let text = "";
    options.front.forEach(([px, py], at) => { text += at ? `H${box.x(px)}V${box.y(py)}` : `M${box.x(px)} ${box.y(py)}`; });
    box.node.append(draw("path", { d: `${text}H${box.right}`, class: "front" }));
  }
  for (const each of groups) {
    if (each.mean && each.mean.every(isNumber)) {
      box.node.append(marker(each.marker, box.x(each.mean[0]), box.y(each.mean[1]), 6.5, { class: `mean f${each.colour}` }));
    }
  }
  const columns = [["", (each) => each.name, "left"], [options.xLabel, (each) => each.mean ? options.xFormat(each.mean[0]) : ABSENT],
    [options.yLabel, (each) => each.mean ? options.yFormat(each.mean[1]) : ABSENT]];
  return make("figure", {}, make("figcaption", {}, title), legendOf(groups.map((each) => ({ ...each }))), box.node,
    make("details", { "data-key": `table:${title}` }, make("summary", {}, "as a table"), tableOf(title, columns, groups.filter((each) => each.mean))));
}

function stackedChart(width, title, xs, series, options) {
  /* Bars that stand above and below zero; a line for their sum, which a reader can check against the total. */
  const above = xs.map((_, at) => series.reduce((sum, each) => sum + Math.max(0, each.y[at] || 0), 0));
  const below = xs.map((_, at) => series.reduce((sum, each) => sum + Math.min(0, each.y[at] || 0), 0));
  const ys = extent([...above, ...below, 0]);
  if (!xs.length || !series.length) return make("figure", {}, make("figcaption", {}, title), make("p", { class: "soft" }, "no reward was paid"));
  series.forEach((each, at) => { each.colour ??= at % 8; });
  const box = frame(width, options.height || 190, [options.from - 0.5, options.to + 0.5], ys, { ...options, whole: true, label: `${title}: ${series.map((each) => each.name).join(", ")}` });
  const wide = Math.max(1, box.x(xs[0] + 0.86) - box.x(xs[0]));
  const tops = xs.map(() => 0), bottoms = xs.map(() => 0);
  for (const each of series) {
    each.y.forEach((value, at) => {
      if (!isNumber(value) || value === 0) return;
      const base = value > 0 ? tops : bottoms, from = base[at];
      base[at] += value;
      const [one, two] = [box.y(from), box.y(base[at])];
      box.node.append(draw("rect", { x: box.x(xs[at]) - wide / 2, width: wide, y: Math.min(one, two), height: Math.max(0.5, Math.abs(one - two)), class: `f${each.colour}` },
        draw("title", {}, `${options.xLabel} ${xs[at]}, ${each.name}: ${value.toFixed(4)}`)));
    });
  }
  box.node.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.y(0), y2: box.y(0) }));
  if (options.total) box.node.append(draw("path", { d: path(xs, options.total, box.x, box.y), class: "alpha" }));
  return make("figure", {}, make("figcaption", {}, title), legendOf(series.map((each) => ({ ...each, marker: "square" }))), box.node,
    dataTable(title, options.xLabel, xs, [...series, ...(options.total ? [{ name: "total", y: options.total }] : [])], options.yFormat));
}

function sparkline(values, label, limit) {
  const known = values.filter(isNumber);
  const ys = extent([...known, ...(isNumber(limit) ? [limit] : [])]);
  const node = draw("svg", { viewBox: "0 0 110 26", class: "spark", role: "img", "aria-label": label, preserveAspectRatio: "none" });
  if (!ys) return node;
  const step = Math.max(1, Math.floor(values.length / 110));
  const some = values.filter((_, at) => at % step === 0);
  const x = scale(0, Math.max(1, some.length - 1), 2, 108), y = scale(ys[0], ys[1], 25, 1);
  if (isNumber(limit)) node.append(draw("line", { class: "limit", x1: 0, x2: 110, y1: y(limit), y2: y(limit) }));
  node.append(draw("path", { d: path(some.map((_, at) => at), some, x, y), class: "curve s0" }));
  return node;
}
