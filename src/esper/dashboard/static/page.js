"use strict";
/* The page: which run is shown, what is known of it, and redrawing the sections whose data changed. */

const PAGE = 40, MOST_SHOWN = 2000;
const DEPENDS = {
  alive: ["state", "settings", "count"], winning: ["rounds", "evaluations", "worth"], health: ["rounds", "health", "doctor"], doing: ["rounds", "seeds"],
  episodes: ["live", "count"], troubles: ["troubles"], compare: ["rounds"],
};

class View {
  constructor(data) {
    this.data = data;
    this.content = document.getElementById("content");
    this.sources = [];
    this.place = readPlace();
  }

  async begin() {
    this.sources = await this.data.sources();
    const known = this.sources.some((each) => each.name === this.place.source);
    if (!this.sources.length) this.content.replaceChildren(make("p", {}, "There is no run and no exam here yet; the page looks again every few seconds."));
    else this.show(known ? this.place.source : this.sources[0].name);
    if (this.data.live) setInterval(() => this.lookAround(), 5000);
    if (this.data.held) this.tellOrigin(this.data.held);
    setInterval(() => this.tellAges(), 1000);
    let wait = 0;
    window.addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(() => this.redraw(null), 200); });
    window.addEventListener("hashchange", () => this.follow());
    window.addEventListener("pagehide", () => sessionStorage.setItem(`scroll:${this.name}`, String(window.scrollY)));
  }

  async lookAround() {
    try { this.sources = await this.data.sources(); } catch { return; }
    this.drawSources();
    if (!this.name && this.sources.length) this.show(this.sources[0].name);
  }

  drawSources() {
    const list = document.getElementById("sources"), text = JSON.stringify([this.name, this.sources.map((each) => [each.name, each.state])]);
    if (list.dataset.shown === text) return;
    list.dataset.shown = text;
    list.replaceChildren(...this.sources.map((each) => make("button", { "aria-current": each.name === this.name ? "true" : null, onclick: () => this.show(each.name) },
      each.name, each.state === "unknown" ? "" : make("span", { class: ENDED[each.state] }, ` ${each.state}`))));
  }

  show(name) {
    if (name !== this.name) Object.assign(this, { name, parts: {}, rounds: [], evaluations: [], episodes: [], purpose: "", more: true, other: "", comparison: null, restored: false });
    this.kind = (this.sources.find((each) => each.name === name) || {}).kind;
    this.place.source = name;
    this.keepPlace();
    this.drawSources();
    this.content.replaceChildren();
    this.data.open(name, (news) => this.take(name, news), (words) => { document.getElementById("link").textContent = words; });
  }

  async take(name, news) {
    if (name !== this.name) return;
    const before = (this.parts.count || {}).episodes;
    for (const [part, value] of Object.entries(news)) {
      if (part === "rounds" || part === "evaluations") this[part].splice(value.from, Infinity, ...value.rows);
      else this.parts[part] = value;
    }
    if (this.kind !== "exam" && news.count && news.count.episodes !== before) {
      try { await this.newest(); } catch (error) { document.getElementById("link").textContent = error.message; }
    }
    this.redraw(Object.keys(news));
    if (!this.restored) this.restore();
    const dialog = document.getElementById("episode");
    if (dialog.open && news.live && isNaN(Number(this.place.episode))) this.open(this.place.episode);
  }

  restore() {
    this.restored = true;
    const scroll = Number(sessionStorage.getItem(`scroll:${this.name}`));
    if (scroll) window.scrollTo(0, scroll);
    if (this.place.other) this.compareWith(this.place.other);
    if (this.place.episode) this.open(this.place.episode);
  }

  redraw(changed) {
    if (!this.parts || !this.parts.state) return;
    const width = Math.max(280, this.content.clientWidth - 34);
    const build = this.kind === "exam" ? { exam: () => examSections(this, width) } : {
      alive: () => aliveSection(this), ...(this.parts.state.is_run ? { winning: () => winningSection(this, width), health: () => healthSection(this), doing: () => doingSection(this, width) } : {}),
      episodes: () => episodesSection(this), troubles: () => troublesSection(this), compare: () => compareSection(this, width),
    };
    for (const [id, make_] of Object.entries(build)) {
      const due = !changed || id === "exam" || changed.some((part) => DEPENDS[id].includes(part)) || !document.getElementById(`place-${id}`);
      if (due) this.place_(id, [make_()].flat().filter(Boolean));
    }
    this.tellAges();
  }

  place_(id, nodes) {
    /* Replace a section, and keep what the reader has opened and where the focus is. */
    const holder = document.getElementById(`place-${id}`) || this.content.appendChild(make("div", { id: `place-${id}` }));
    const open = new Set([...holder.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    const shut = new Set([...holder.querySelectorAll("details:not([open])")].map((each) => each.dataset.key));
    const focus = holder.contains(document.activeElement) ? [...holder.querySelectorAll("button, select, summary, a, [tabindex]")].indexOf(document.activeElement) : -1;
    const scrolls = [...holder.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    holder.replaceChildren(...nodes);
    for (const each of holder.querySelectorAll("details")) {
      if (open.has(each.dataset.key)) each.open = true;
      else if (shut.has(each.dataset.key)) each.open = false;
    }
    [...holder.querySelectorAll(".scroll")].forEach((each, at) => { each.scrollLeft = scrolls[at] || 0; });
    if (focus >= 0) { const all = holder.querySelectorAll("button, select, summary, a, [tabindex]"); if (all[focus]) all[focus].focus({ preventScroll: true }); }
  }

  tellAges() {
    for (const each of document.querySelectorAll("[data-since]")) {
      const since = Number(each.dataset.since);
      if (!since) continue;
      const age = Date.now() / 1000 - since;
      each.textContent = this.data.live ? `${duration(age)} ago` : new Date(since * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";
      each.className = this.data.live && each.dataset.state === "running" && age > 120 ? "warn" : "";
    }
  }

  tellOrigin(held) {
    const versions = Object.entries(held.versions).map(([name, version]) => `${name} ${version}`).join(", ");
    document.querySelector("main").after(make("footer", {}, make("p", { class: "soft" }, `Made ${held.made} with ${versions} by `, make("code", {}, held.command))));
  }

  async newest() {
    const found = await this.data.episodes(this.name, null, PAGE, this.purpose);
    const known = new Set(found.map((each) => each.number)), lowest = Math.min(...known);
    const rest = this.episodes.length && this.episodes[0].number >= lowest ? this.episodes.filter((each) => !known.has(each.number) && each.number < lowest) : [];
    this.episodes = [...found, ...rest].slice(0, MOST_SHOWN);
    this.more = found.length === PAGE || rest.length > 0;
  }

  async older() {
    const last = this.episodes[this.episodes.length - 1];
    const found = last ? await this.data.episodes(this.name, last.number, PAGE, this.purpose) : [];
    this.more = found.length === PAGE && this.episodes.length + found.length < MOST_SHOWN;
    this.episodes.push(...found);
    this.redraw(["count"]);
  }

  async choose(purpose) {
    this.purpose = purpose;
    this.episodes = [];
    await this.newest();
    this.redraw(["count"]);
  }

  async compareWith(other) {
    this.other = other;
    this.place.other = other;
    this.keepPlace();
    this.comparison = null;
    if (other) {
      const [found, news] = await Promise.all([this.data.compare(this.name, other), this.data.snapshot(other)]);
      this.comparison = { ...found, rounds: news.rounds.rows };
    }
    this.redraw(["rounds"]);
  }

  async open(number) {
    const dialog = document.getElementById("episode");
    this.place.episode = String(number);
    this.keepPlace();
    const close = make("button", { onclick: () => dialog.close() }, "close");
    let body;
    const wide = Math.max(280, Math.min(1180, window.innerWidth * 0.96) - 40);
    try { body = episodeView(await this.data.episode(this.name, number), wide); } catch (error) { body = make("p", {}, error.message); }
    const title = isNaN(Number(number)) ? "The episode that is being played" : `Episode ${number}`;
    const scroll = dialog.open ? dialog.scrollTop : 0;
    dialog.replaceChildren(make("div", { class: "bar" }, make("h2", {}, title), close), ...[body].flat().filter(Boolean));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = scroll;
    dialog.onclose = () => { this.place.episode = ""; this.keepPlace(); };
  }

  follow() {
    const wanted = readPlace(), before = this.place;
    this.place = wanted;
    if (wanted.source && wanted.source !== before.source && this.sources.some((each) => each.name === wanted.source)) this.show(wanted.source);
    else if (wanted.episode && wanted.episode !== before.episode) this.open(wanted.episode);
    else if (!wanted.episode) document.getElementById("episode").close();
  }

  keepPlace() {
    const kept = Object.fromEntries(Object.entries(this.place).filter(([, value]) => value));
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  }
}

function readPlace() {
  const found = new URLSearchParams(location.hash.slice(1));
  return { source: found.get("source") || "", episode: found.get("episode") || "", other: found.get("other") || "" };
}

const held = document.getElementById("held");
new View(held ? new FrozenData(JSON.parse(held.textContent)) : new LiveData()).begin();
