"use strict";
/* The sections of a run. Each is a function of what the server said, and gives an element. */

const ENDED = { finished: "good", running: "good", interrupted: "warn", halted: "bad", failed: "bad", killed: "bad", unknown: "warn" };
const SENTENCES = {
  running: "It trains.", finished: "It is complete.", interrupted: "Somebody asked it to stop.", failed: "An error ended it.",
  halted: "A health check ended it.", killed: "Its process is gone without a word: it was killed, or the machine went down.",
  unknown: "Nothing says how it is: there is no readable status.",
};

function aliveSection(view) {
  const state = view.parts.state, about = state.about || {};
  const tiles = [
    ["round", state.round === null && state.rounds === null ? ABSENT : `${state.round ?? 0} / ${state.rounds ?? "?"}`],
    ["last event", make("span", { "data-since": state.last_event, "data-state": state.state }, ABSENT)],
    ["time left", state.state === "running" ? duration(state.seconds_left) : ABSENT],
    ["episodes per minute", shown(state.episodes_per_minute, digits(1))],
    ["best greedy return", state.best === null ? ABSENT : `${signed(state.best)} (round ${state.best_round})`],
    ["episodes", whole((view.parts.count || {}).episodes || 0)],
  ];
  const shownTiles = state.is_run ? tiles : [tiles[1], tiles[5]];
  const stopped = ["killed", "interrupted", "failed"].includes(state.state) && state.go_on;
  return section("alive", "Is it alive?",
    make("p", {}, make("span", { class: `state ${ENDED[state.state]}` }, state.state), " ", SENTENCES[state.state] || "",
      state.reason ? make("span", { class: "bad" }, ` ${state.reason}`) : null),
    stopped ? make("p", {}, "Go on with ", make("code", {}, state.go_on)) : null,
    state.refused ? make("p", { class: "bad" }, state.refused) : null,
    state.reading ? make("p", { class: "warn", role: "status" }, "The log is still being read; figures grow.") : null,
    make("dl", { class: "tiles" }, shownTiles.map(([name, value]) => make("div", { class: "tile" }, make("dt", {}, name), make("dd", {}, value)))),
    make("p", { class: "soft" }, Object.entries(about).map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(", ") : value}`).join(" · "),
      state.resumed ? ` · resumed ${state.resumed} time(s)` : ""),
    state.warnings.map((each) => make("p", { class: "warn" }, each)),
    view.parts.settings && view.parts.settings.rows.length ? make("details", { "data-key": "settings" }, make("summary", {}, "all settings"),
      make("p", {}, "The same again: ", make("code", {}, view.parts.settings.command)),
      tableOf("Settings", [["setting", (each) => each[0]], ["value", (each) => String(each[1]), "words"]], view.parts.settings.rows)) : null);
}

const column = (rows, ...names) => rows.map((row) => names.reduce((value, name) => (value === null || value === undefined ? null : value[name] ?? null), row));

function evaluationCurve(view, xs) {
  const at = new Map(view.evaluations.map((row) => [row.until, row]));
  const pick = (name) => xs.map((round) => (at.get(round) || {})[name] ?? null);
  return { name: "greedy, 95 % interval", y: pick("total"), marker: "square", colour: 0, low: pick("low"), high: pick("high") };
}


function winningSection(view, width) {
  const rows = view.rounds, xs = column(rows, "until"), worth = view.parts.worth || { policies: [], training: [], dots: {}, front: [], tasks: [] };
  const half = width > 760 ? (width - 24) / 2 : width, score = scoreOf(view.parts.state.metric);
  const greedy = evaluationCurve(view, xs), merged = rows.some((row) => row.count > 1);
  const controls = worth.policies.filter((each) => each.name !== "greedy").map((each, at) => ({ name: LABELS[each.name] || each.name, y: xs.map(() => each.total), colour: 2 + at, dash: DASHES[2 + at] }));
  const returns = [{ name: merged ? "training (means of several rounds)" : "training, middle half of the episodes", y: column(rows, "total"), low: column(rows, "low"), high: column(rows, "high"), colour: 1, dash: null }];
  const groups = [
    { name: "training episodes", dots: worth.training, colour: 5, marker: "circle" },
    ...worth.policies.map((each, at) => ({ name: `${LABELS[each.name] || each.name} (held-out seeds)`, dots: worth.dots[each.name], mean: [each.growth, each.quality], colour: at % 5, marker: MARKERS[at % 5] })),
  ];
  const last = view.evaluations[view.evaluations.length - 1];
  if (!worth.policies.length && last) groups.push({ name: "last greedy evaluation", mean: [last.growth, last.quality], colour: 0, marker: "square" });
  const growth = [{ name: "training", y: column(rows, "growth"), colour: 1, dash: null }];
  const gain = [{ name: "gain over the twin", y: column(rows, "gain"), colour: 2, dash: null }];
  return section("winning", "Is it winning?", make("div", { class: "grid" },
    lineChart(half, "Return per round", xs, [...returns, { ...greedy, dash: "1 0" }, ...controls], { xLabel: "round", yFormat: signed, from: 1, to: Math.max(2, (view.parts.state.rounds || 2)), empty: "no round is complete yet" }),
    planeChart(half, `${capital(score.name)} against parameters`, groups, { xLabel: "parameters over the host's", yLabel: score.name, xFormat: times, yFormat: score.tell, log: true, front: worth.front, empty: "no episode is over yet" }),
    lineChart(half, "Parameters over the host's", xs, growth, { xLabel: "round", yFormat: times }),
    gain[0].y.some(isNumber) ? lineChart(half, `${capital(score.name)} gained over the same run without growth`, xs, gain, { xLabel: "round", yFormat: score.less, include: [0] })
      : lineChart(half, `${capital(score.name)} at the end of episodes`, xs, [{ name: "training", y: column(rows, "quality"), colour: 1, dash: null }], { xLabel: "round", yFormat: score.tell })),
    policyTable("On held-out seeds, after training", worth.policies, score),
    policyTable("By task, in the last training episodes", worth.tasks, score),
    byTask(view));
}

const LABELS = { greedy: "learned", none: "no growth" };

function policyTable(title, rows, score) {
  if (!rows.length) return null;
  return tableOf(title, [["", (each) => LABELS[each.name] || each.name], ["episodes", (each) => each.episodes],
    ["return [95 %]", (each) => estimate({ value: each.total, low: each.low, high: each.high }, signed)],
    [score.name, (each) => shown(each.quality, score.tell)], ["growth", (each) => shown(each.growth, times)]], rows);
}

function byTask(view) {
  const last = view.evaluations[view.evaluations.length - 1];
  const tasks = last ? Object.entries(last.by_task || {}) : [];
  return tasks.length > 1 ? tableOf(`Greedy return by task, round ${last.until}`, [["task", (each) => each[0]], ["return", (each) => shown(each[1], signed)]], tasks) : null;
}

function healthSection(view) {
  const health = view.parts.health || { gauges: [] }, doctor = view.parts.doctor || {};
  return section("health", "Is the policy healthy?",
    health.gauges.length ? make("div", { class: "gauges" }, health.gauges.map((gauge) => gaugeOf(gauge, view.rounds))) : make("p", { class: "soft" }, "No update was made yet."),
    make("h3", {}, "What the doctor says"),
    !doctor.asked ? make("p", { class: "soft" }, "He has not looked yet.")
      : doctor.findings.length ? make("ul", {}, doctor.findings.map((each) => make("li", {}, make("b", { class: "bad" }, `${each.what}: `), each.sentence)))
        : make("p", { class: "good" }, "Nothing looks wrong."),
    (doctor.remarks || []).map((each) => make("p", { class: "soft" }, each)));
}

function gaugeOf(gauge, rows) {
  const format = gauge.name.includes("share") ? percent : figure3, values = column(rows, ...gauge.path);
  const limit = isNumber(gauge.threshold) ? `${gauge.floor ? "must stay above" : "threshold"} ${format(gauge.threshold)}` + (gauge.early ? ", not judged yet" : "") : "no threshold";
  const trendLimit = gauge.name.startsWith("value error") ? undefined : gauge.threshold;
  return make("div", { class: `gauge ${gauge.crossed ? "crossed" : ""}` },
    make("span", {}, `${gauge.name} `), make("b", { "data-gauge": gauge.name }, shown(gauge.value, format)),
    sparkline(values, `${gauge.name} over the rounds, last ${shown(gauge.value, format)}`, trendLimit),
    make("p", { class: gauge.crossed ? "bad" : "soft" }, gauge.crossed ? `⚠ ${gauge.words}` : limit), make("p", { class: "soft" }, gauge.meaning));
}

function doingSection(view, width) {
  const rows = view.rounds, xs = column(rows, "until"), half = width > 760 ? (width - 24) / 2 : width;
  const ops = [...new Set(rows.flatMap((row) => Object.keys(row.ops || {})))];
  const seeds = view.parts.seeds || { rows: [], known: true };
  const columns = [["blueprint", (each) => each.blueprint], ["slot", (each) => each.slot, "left"], ["germinated", (each) => whole(each.germinated)], ["kept", (each) => whole(each.kept)],
    ["pruned", (each) => whole(each.pruned)], ["still growing at the end", (each) => whole(each.growing)], ["epochs until pruned", (each) => shown(each.lifespan, digits(1))]];
  return section("doing", "What does it do?", make("div", { class: "grid" },
    lineChart(half, "What is chosen where there is a choice", xs, ops.map((op) => ({ name: op, y: column(rows, "ops", op).map((value, at) => (rows[at].ops ? value ?? 0 : null)) })), { xLabel: "round", yFormat: percent, floor: 0, empty: "no round is complete yet" }),
    lineChart(half, "Forced: only one action was legal", xs, [{ name: "share of all epochs", y: column(rows, "forced_share"), colour: 5 }], { xLabel: "round", yFormat: percent, floor: 0 })),
    seeds.rows.length ? make("div", { class: "tall" }, tableOf("Seeds of training episodes, by blueprint and slot", columns, seeds.rows))
      : make("p", { class: "soft" }, seeds.known ? "No seed was planted in training yet." : "This log is of an older version, which did not tell what became of seeds; single episodes below show it."));
}

function liveTable(view) {
  const live = (view.parts.live || { episodes: [] }).episodes;
  if (!live.length) return null;
  const score = scoreOf(view.parts.state.metric), dead = view.parts.state.state !== "running" && view.parts.state.is_run;
  const columns = [["episode", (each) => make("button", { onclick: () => view.open(each.key) }, dead ? "cut short" : "now")], ["policy", (each) => each.policy ?? ABSENT, "left"], ["task", (each) => each.task ?? ABSENT, "left"],
    ["epoch", (each) => `${each.epochs}/${each.horizon}`], [score.name, (each) => shown(lastOf(each.curve), score.tell)], ["twin", (each) => shown(lastOf(each.twin), score.tell)],
    ["course", (each) => sparkline(each.curve, `${scoreOf(view.parts.state.metric).name} by epoch`)], ["slots", (each) => each.cells.map(cellOf), "left"]];
  return tableOf(dead ? "Episodes that were being played when it ended" : "Being played now", columns, live);
}

const lastOf = (values) => { const known = (values || []).filter(isNumber); return known.length ? known[known.length - 1] : null; };

const EPISODE_COLUMNS = (view) => [
  ["episode", (each) => make("button", { onclick: (event) => { event.stopPropagation(); view.open(each.number); } }, String(each.number))],
  ["round", (each) => each.round], ["for", (each) => each.purpose, "left"], ["policy", (each) => each.policy, "left"], ["task", (each) => each.task, "left"], ["return", (each) => shown(each.total, signed)],
  [scoreOf(view.parts.state.metric).name, (each) => shown(each.quality, scoreOf(view.parts.state.metric).tell)], ["twin", (each) => shown(each.twin_quality, scoreOf(view.parts.state.metric).tell)], ["growth", (each) => shown(each.growth, times)],
  ["course", (each) => sparkline(each.curve, `${scoreOf(view.parts.state.metric).name} by epoch`)], ["slots at the end", (each) => [each.panic ? make("span", { class: "bad" }, "rolled back ") : null, each.cells.map(cellOf)], "left"]];

function episodesSection(view) {
  const count = view.parts.count || { episodes: 0, kept: 0 }, columns = EPISODE_COLUMNS(view);
  const rows = view.episodes.map((each) => rowOf(columns, each, { class: "link", onclick: () => view.open(each.number) }));
  const choice = make("select", { "aria-label": "Which episodes", onchange: (event) => view.choose(event.target.value) },
    [["", "all episodes"], ["train", "training"], ["evaluate", "evaluation"], ["compare", "comparison"]].map(([value, text]) => make("option", { value, selected: value === view.purpose }, text)));
  const table = tableOf(`The last of ${whole(count.episodes)} episodes`, columns, []);
  table.querySelector("tbody").append(...rows);
  return section("episodes", "What is each episode doing?", liveTable(view), make("div", { class: "bar" }, choice,
    make("span", { class: "soft" }, count.kept < count.episodes ? `the last ${whole(count.kept)} are kept` : "")), table,
    view.more ? make("button", { id: "older", onclick: () => view.older() }, "older episodes") : null);
}

function troublesSection(view) {
  const rows = (view.parts.troubles || { rows: [] }).rows;
  const columns = [["round", (each) => each.round], ["what", (each) => each.kind, "left"], ["cause", (each) => each.words, "words"],
    ["episode", (each) => (each.number ? make("button", { onclick: () => view.open(each.number) }, String(each.number)) : each.episode === null ? ABSENT : `seed ${each.episode}`)],
    ["epoch", (each) => (each.epoch === null ? ABSENT : each.epoch + 1)], ["action", (each) => each.action ?? ABSENT, "left"]];
  return section("troubles", "What went wrong?", rows.length ? tableOf("Anomalies, rollbacks, suspicions and losses, the latest first", columns, rows) : make("p", { class: "good" }, "Nothing was reported."));
}

function compareSection(view, width) {
  const others = view.sources.filter((each) => each.kind === "run" && each.name !== view.name);
  if (!others.length || !view.parts.state.is_run) return null;
  const select = make("select", { "aria-label": "Run to compare with", onchange: (event) => view.compareWith(event.target.value) },
    make("option", { value: "" }, "choose a run"), others.map((each) => make("option", { value: each.name, selected: each.name === view.other }, each.name)));
  const found = view.comparison;
  if (!found) return section("compare", "Compared with another run", select);
  const xs = [...new Set([...column(view.rounds, "until"), ...column(found.rounds, "until")])].sort((a, b) => a - b);
  const pick = (rows) => { const at = new Map(rows.map((row) => [row.until, row.total])); return xs.map((round) => at.get(round) ?? null); };
  const words = { evaluate: "last greedy evaluation", compare: "held-out seeds after training" };
  return section("compare", "Compared with another run", select,
    lineChart(width, "Return per round", xs, [{ name: view.name, y: pick(view.rounds), colour: 1 }, { name: view.other, y: pick(found.rounds), colour: 0 }], { xLabel: "round", yFormat: signed }),
    found.differences.length ? tableOf(`Return of ${view.name} minus that of ${view.other}, on the same tasks and seeds`, [["", (each) => words[each.purpose]], ["pairs", (each) => each.pairs],
      ["difference [95 %]", (each) => estimate(each, signed)], ["", (each) => (each.low > 0 || each.high < 0 ? "clear of zero" : "may be chance"), "left"]], found.differences)
      : make("p", { class: "soft" }, "They have played no seed in common."),
    found.settings.length ? tableOf("Settings that differ", [["setting", (each) => each.name], [view.name, (each) => shownSetting(each.first), "words"], [view.other, (each) => shownSetting(each.second), "words"]], found.settings)
      : make("p", { class: "soft" }, "Their settings are the same."));
}

const shownSetting = (value) => (value === null || value === undefined ? ABSENT : String(value));
