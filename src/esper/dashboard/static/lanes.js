"use strict";
/* One episode: quality beside its twin, a lane for every slot, rewards, contributions, decisions. */

const STAGES = ["GERMINATED", "TRAINING", "BLENDING", "HOLDING", "FOSSILIZED", "PRUNED", "EMBARGOED", "RESETTING"];
const HATCHES = {
  GERMINATED: () => draw("circle", { cx: 4, cy: 4, r: 1.1, class: "hatch-dot" }),
  TRAINING: () => draw("path", { d: "M0 8L8 0", class: "hatch" }),
  BLENDING: () => draw("path", { d: "M0 8L8 0M0 0L8 8", class: "hatch" }),
  HOLDING: () => draw("path", { d: "M0 4H8", class: "hatch" }),
  FOSSILIZED: () => null,
  PRUNED: () => draw("path", { d: "M4 0V8", class: "hatch" }),
  EMBARGOED: () => draw("path", { d: "M0 0L8 8", class: "hatch" }),
  RESETTING: () => draw("circle", { cx: 4, cy: 4, r: 2, class: "hatch" }),
};
const SHORT = { GERMINATED: "germinated", TRAINING: "training", BLENDING: "blending", HOLDING: "holding", FOSSILIZED: "fossil", PRUNED: "pruned", EMBARGOED: "cooling", RESETTING: "resetting", DORMANT: "empty" };

function hatches() {
  return draw("defs", {}, STAGES.map((stage) => draw("pattern", { id: `hatch-${stage}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, HATCHES[stage]())));
}

function stageBox(stage, attributes) {
  return [draw("rect", { ...attributes, class: `stage-${stage}` }), draw("rect", { ...attributes, fill: `url(#hatch-${stage})` })];
}

function cellOf(cell) {
  const words = [SHORT[cell.stage] || cell.stage, cell.blueprint, isNumber(cell.alpha) && cell.stage !== "DORMANT" ? `α ${cell.alpha.toFixed(2)}` : null];
  return make("span", { class: `cell ${STAGES.includes(cell.stage) ? cell.stage : ""}`, title: cell.slot }, words.filter(Boolean).join(" · "));
}

function lanesChart(width, story) {
  const height = 46, left = 54, right = width - 10, bottom = story.slots.length * (height + 16) + 4;
  const x = scale(0, Math.max(1, story.horizon), left, right);
  const told = story.slots.map((slot) => `${slot}: ` + (story.spans.filter((each) => each.slot === slot).map((each) => `${each.stage} from epoch ${each.begin} to ${each.end}`).join(", ") || "empty"));
  const node = draw("svg", { viewBox: `0 0 ${width} ${bottom + 34}`, role: "img", "aria-label": `Stages of the slots. ${told.join(". ")}` }, hatches());
  story.slots.forEach((slot, row) => {
    const top = row * (height + 16) + 14;
    node.append(draw("text", { x: left, y: top - 3, class: "strong" }, slot), draw("rect", { class: "lane", x: left, y: top, width: right - left, height }));
    for (const span of story.spans.filter((each) => each.slot === slot)) {
      const place = { x: x(span.begin), y: top, width: Math.max(1, x(span.end) - x(span.begin)), height };
      node.append(draw("g", {}, stageBox(span.stage, place), draw("title", {}, `${slot}: ${span.stage}, epochs ${span.begin} to ${span.end}`)));
      if (place.width > SHORT[span.stage].length * 6.6) node.append(draw("text", { x: place.x + 4, y: top + height - 5, class: "on-lane" }, SHORT[span.stage]));
    }
    for (const each of story.decisions.filter((one) => one.op === "GERMINATE" && one.slot === slot && !one.refused.length)) {
      node.append(draw("text", { x: x(each.epoch) + 4, y: top + 13, class: "on-lane" }, each.blueprint || "?"));
    }
    const alphas = story.alphas[slot];
    if (alphas) node.append(draw("path", { d: path(alphas.map((_, at) => at + 1), alphas, x, scale(0, 1, top + height - 2, top + 2), false), class: "alpha" }));
  });
  for (const at of ticks(0, story.horizon, width > 500 ? 10 : 5).filter(Number.isInteger)) {
    node.append(draw("text", { x: x(at), y: bottom + 15, "text-anchor": "middle" }, String(at)));
  }
  node.append(draw("text", { x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, "epoch"));
  const used = STAGES.filter((stage) => story.spans.some((each) => each.stage === stage));
  const legend = make("ul", { class: "legend" }, used.map((stage) => make("li", {},
    draw("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, hatches(), stageBox(stage, { width: 26, height: 12 })), SHORT[stage])),
    make("li", {}, draw("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, draw("path", { d: "M0 12L26 2", class: "alpha" })), "alpha, 0 to 1"));
  const columns = [["slot", (each) => each.slot], ["stage", (each) => each.stage], ["from epoch", (each) => each.begin], ["to epoch", (each) => each.end]];
  return make("figure", {}, make("figcaption", {}, "Slots"), legend, node,
    make("details", { "data-key": "table:lanes" }, make("summary", {}, "as a table"), tableOf("Stages", columns, story.spans)));
}

function episodeView(story, width) {
  const line = story.line || {}, score = scoreOf(story.metric), epochs = story.quality.map((_, at) => at + 1);
  const state = story.panic ? make("span", { class: "bad" }, `rolled back: ${story.panic}`) : story.over ? "over" : make("span", { class: "good" }, "being played");
  const facts = [["task", story.task], ["policy", story.policy], ["purpose", story.purpose], ["round", line.round ?? story.round], ["seed", line.seed ?? story.seed],
    ["return", shown(story.total, signed)], [`${score.name} at the end`, shown(story.end_quality, score.tell)], ["growth", shown(line.growth, times)],
    ["epochs", `${story.epochs} of ${story.horizon}`]];
  const quality = [{ name: "grown", y: story.quality, colour: 1 }, { name: "twin without growth", y: story.twin, colour: 5, dash: "6 4" }].filter((each) => each.y.some(isNumber));
  const terms = Object.entries(story.terms).map(([name, y]) => ({ name, y })).filter((each) => each.y.some((value) => value));
  const measured = Object.entries(story.contributions).map(([name, y]) => ({ name, y, steps: false }));
  const options = { xLabel: "epoch", from: 0, to: Math.max(1, story.horizon) };
  return [
    make("p", {}, state),
    make("dl", { class: "tiles" }, facts.map(([name, value]) => make("div", { class: "tile" }, make("dt", {}, name), make("dd", {}, value ?? ABSENT)))),
    lineChart(width, `${capital(score.name)} on the evaluation split`, epochs, quality, { ...options, yFormat: score.tell, floor: 0, empty: `no ${score.name} was recorded` }),
    story.twin.some(isNumber) ? null : make("p", { class: "soft" }, "No twin was measured: the reward needs none."),
    lanesChart(width, story),
    stackedChart(width, "Reward, term by term", epochs, terms, { ...options, yFormat: signed, total: story.paid }),
    lineChart(width, `Contribution: ${score.name} lost without the seed`, epochs, measured, { ...options, yFormat: score.less, empty: "not measured in this episode" }),
    measured.length ? make("p", { class: "soft" }, "Where a curve is absent the contribution was not measured; that is not zero.") : null,
    decisionTable(story),
    make("details", { "data-key": "news" }, make("summary", {}, `what happened, in words (${story.news.length})`),
      tableOf("Events", [["epoch", (each) => each.epoch + 1], ["slot", (each) => each.slot ?? ABSENT, "left"], ["what", (each) => each.words, "words"]], story.news)),
  ];
}

function decisionTable(story) {
  const columns = [
    ["epoch", (each) => each.epoch + 1],
    ["decision", (each) => `${each.op} ${["slot", "blueprint", "style", "tempo", "alpha_target", "alpha_speed", "alpha_curve"].map((head) => each.heads[head]).filter(Boolean).join(" ")}${each.forced ? " (forced)" : ""}${each.refused.length ? ` (refused: ${each.refused.join(", ")})` : ""}`, "words"],
    ["expected", (each) => shown(each.value, signed)],
    ["how likely", (each) => chancesOf(each), "words"],
  ];
  return make("details", { "data-key": "decisions", open: true }, make("summary", {}, `decisions (${story.decisions.length})`), tableOf("Decisions and their probabilities", columns, story.decisions));
}

function chancesOf(decision) {
  const heads = Object.entries(decision.probabilities);
  if (!heads.length) return decision.forced ? "no choice" : "not a learned policy";
  return make("span", { class: "chances" }, heads.map(([head, choices]) => {
    const likely = choices.filter(([name, chance]) => chance >= 0.005 || name === decision.heads[head]).sort((a, b) => b[1] - a[1]).slice(0, 4);
    const text = likely.map(([name, chance]) => `${name} ${Math.round(100 * chance)} %`).join(", ");
    return make("span", { title: choices.map(([name, chance]) => `${name} ${percent(chance)}`).join("\n") }, make("b", {}, `${head}: `), text);
  }));
}
