"use strict";
/* Elements from plain values, and numbers in words. Whatever is given as text stays text: nothing here parses HTML. */

const SVG = "http://www.w3.org/2000/svg";
const ABSENT = "–";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9)) {
    if (child !== null && child !== undefined && child !== false) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/* What was not measured is shown as such; what is not finite goes by its name. */
function shown(value, format) {
  if (value === null || value === undefined) return ABSENT;
  return isNumber(value) ? format(value) : String(value);
}

const digits = (count) => (value) => value.toFixed(count);
const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
const percent = (value) => (100 * value).toFixed(1) + " %";
const times = (value) => "×" + value.toFixed(2);
const capital = (words) => words[0].toUpperCase() + words.slice(1);

/* How a quality is told: by the metric that networks are judged by, or as it is where that is not known or differs. */
function scoreOf(metric) {
  if (!metric || metric.unit === "%") return { name: metric ? metric.name : "quality", tell: percent, less: percent };
  const [worst, best] = metric.logarithmic ? [Math.log(metric.worst), Math.log(metric.best)] : [metric.worst, metric.best];
  const score = (quality) => (metric.logarithmic ? Math.exp(worst + quality * (best - worst)) : worst + quality * (best - worst));
  return {
    name: metric.unit.startsWith("bits") ? metric.unit : metric.unit ? `${metric.name} in ${metric.unit}` : metric.name,
    tell: (quality) => score(quality).toFixed(3), less: metric.logarithmic ? percent : (gain) => signed(gain * (best - worst)),
  };
}

const figure3 = (value) => (value !== 0 && (Math.abs(value) < 0.001 || Math.abs(value) >= 1e5) ? value.toExponential(1) : String(Number(value.toPrecision(3))));
const whole = (value) => Math.round(value).toLocaleString("en");

function large(value) {
  for (const [size, letter] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + letter;
  }
  return Number(value.toPrecision(3)).toString();
}

function duration(seconds) {
  if (!isNumber(seconds)) return ABSENT;
  const all = Math.max(0, Math.round(seconds));
  if (all < 60) return `${all} s`;
  const [hours, minutes] = [Math.floor(all / 3600), Math.floor((all % 3600) / 60)];
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${all % 60} s`;
}

function tableOf(caption, columns, rows, attributes) {
  /* Columns are [title, read, class]; a cell may be text or an element. */
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", attributes,
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, columns.map(([title, , kind]) => make("th", { scope: "col", class: kind }, title)))),
      make("tbody", {}, rows.map((row) => rowOf(columns, row)))));
}

function rowOf(columns, row, attributes) {
  return make("tr", attributes, columns.map(([, read, kind]) => make("td", { class: kind }, read(row))));
}

function estimate(value, format) {
  if (!value) return ABSENT;
  return `${format(value.value)} [${format(value.low)}, ${format(value.high)}]`;
}

function section(id, title, ...children) {
  return make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), children);
}
