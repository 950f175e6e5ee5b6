"use strict";
/* The sections of an exam: how far it is, the table, the two planes. */

function examSections(view, width) {
  const state = view.parts.state, table = view.parts.table || { groups: [] };
  return [
    section("alive", "Is it alive?",
      make("p", {}, make("span", { class: `state ${ENDED[state.state]}` }, state.state), " ", state.state === "running" ? "It is being held." : state.state === "finished" ? "All episodes are played." : SENTENCES[state.state],
        state.reason ? make("span", { class: "bad" }, ` ${state.reason}`) : null),
      state.refused ? make("p", { class: "bad" }, state.refused) : null,
      state.total ? make("p", {}, make("label", {}, `${state.stage}: ${state.done} of ${state.total} episodes `, make("progress", { max: state.total, value: state.done }))) : null,
      make("p", { class: "soft" }, `${whole(state.rows)} rows · last word `, make("span", { "data-since": state.last_event, "data-state": state.state }, ABSENT)),
      state.command ? make("p", { class: "soft" }, "Held by ", make("code", {}, state.command)) : null),
    ...table.groups.map((group, at) => examGroup(group, width, at)),
  ];
}

function examGroup(group, width, number) {
  const half = width > 760 ? (width - 24) / 2 : width, quality = group.metric === "accuracy" ? "accuracy" : "quality";
  const columns = [["policy", (each) => each.policy], ["rows", (each) => whole(each.rows)], ...(group.is_loss ? [[`${group.metric} [95 %]`, (each) => estimate(each.told, digits(3))]] : []), [`${quality} [95 %]`, (each) => estimate(each.quality, percent)],
    ["score [95 %]", (each) => estimate(each.score, percent)], ["score over no growth [95 %]", (each) => estimate(each.gain, percent)], ["growth", (each) => shown(each.growth, times)],
    ["parameters", (each) => large(each.parameters)], ["training FLOPs", (each) => large(each.flops)], ["rollbacks", (each) => whole(each.rollbacks)]];
  const plane = (title, place, label) => planeChart(half, title, group.policies.map((each, at) => ({
    name: each.policy, dots: each.dots.map((dot) => [dot[place], dot[2]]), mean: [place ? each.flops : each.parameters, each.quality.value], colour: at % 8, marker: MARKERS[at % 5] })),
    { xLabel: label, yLabel: quality, xFormat: large, yFormat: percent, log: true, front: frontOf(group.policies.map((each) => [place ? each.flops : each.parameters, each.quality.value])) });
  return section(`exam-${number}`, group.title, tableOf("On the test split; intervals are Student's, over seeds or, where there are several, over tasks; exam.md has those of the report", columns, group.policies),
    make("div", { class: "grid" }, plane(`${quality} against parameters`, 0, "parameters"), plane(`${quality} against training operations`, 1, "training FLOPs")));
}

function frontOf(points) {
  const kept = [];
  for (const point of [...points].sort((a, b) => a[0] - b[0] || b[1] - a[1])) if (!kept.length || point[1] > kept[kept.length - 1][1]) kept.push(point);
  return kept;
}
