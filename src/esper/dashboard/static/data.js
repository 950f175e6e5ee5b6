"use strict";
/* Where a page has its data from: a server that pushes what is new, or what a report holds. Both answer the same calls. */

class LiveData {
  constructor() { this.live = true; this.stream = null; }

  async ask(what, values) {
    const answer = await fetch(`/api/${what}?${new URLSearchParams(values || {})}`);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error || answer.statusText);
    return found;
  }

  async sources() { return (await this.ask("sources")).sources; }
  snapshot(name) { return this.ask("snapshot", { source: name }); }
  episodes(name, before, limit, purpose) { return this.ask("episodes", { source: name, before: before ?? "", limit, purpose }); }
  episode(name, number) { return this.ask("episode", { source: name, number }); }
  compare(first, second) { return this.ask("compare", { first, second }); }

  open(name, take, say) {
    if (this.stream) this.stream.close();
    const stream = new EventSource(`/api/stream?${new URLSearchParams({ source: name })}`);
    this.stream = stream;
    stream.onopen = () => say("live");
    stream.onmessage = (message) => { say("live"); take(JSON.parse(message.data)); };
    stream.addEventListener("gone", (message) => { say(JSON.parse(message.data).error); stream.close(); });
    stream.onerror = () => say(stream.readyState === EventSource.CLOSED ? "the server refused; reload" : "the connection is lost; trying again");
  }
}

class FrozenData {
  constructor(held) { this.live = false; this.held = held; }

  async sources() { return this.held.sources.map((each) => each.source); }
  find(name) { return this.held.sources.find((each) => each.source.name === name); }
  async snapshot(name) { return this.find(name).news; }
  async episodes(name, before, limit, purpose) {
    return this.find(name).episodes.filter((each) => (before === null || each.number < before) && (!purpose || each.purpose === purpose)).slice(0, limit);
  }
  async episode(name, number) {
    const story = this.find(name).stories[number];
    if (!story) throw new Error("the report does not hold this episode");
    return story;
  }
  async compare(first, second) { return this.held.comparisons[`${first}\n${second}`]; }
  open(name, take, say) { say(`report of ${this.held.made}`); take(this.find(name).news); }
}
