// The live page: asks `ui/data` once a second while somebody looks, and shows what came.

import { STEPS, el, line, meter, percent, stacked, time } from "./charts.js";

const POLL = 1000; // ms
const SPANS = [60, 120, 300]; // seconds that are shown: the first that holds all there is
const WORDS = { 60: "minute", 120: "two minutes", 300: "five minutes" };
const ROWS = 50; // decisions that are shown
const KEY = "tier-router-key";

const $ = (id) => document.getElementById(id);
let key = sessionStorage.getItem(KEY) ?? "";
let timer = null;
let asking = false;
let paused = false;
let seen; // what was told so far
let replicas; // name -> the nodes that show it
let looks = new Map(); // tier -> the class of its colour

function forget() {
  seen = { worker: null, since: 0, seconds: new Map(), newest: 0 };
  replicas = new Map();
  for (const id of ["replicas", "last", "classes"]) $(id).replaceChildren();
}

function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  return fetch(new URL(path, document.baseURI), { cache: "no-store", ...options, headers });
}

function say(state, words) {
  if ($("status").dataset.state === state && $("status").textContent === words) return;
  $("status").dataset.state = state;
  $("status").textContent = words;
}

// ---- the poll

async function tick() {
  clearTimeout(timer);
  if (asking || paused || document.hidden) return;
  asking = true;
  try {
    const answer = await ask(`ui/data?since=${seen.since}`);
    if (answer.status === 401) return login(key ? "The router does not know this key." : "");
    if (answer.status === 404) throw new Error("the page was turned off");
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json());
    timer = setTimeout(tick, POLL);
  } catch (error) {
    say("lost", `no answer (${error.message}); trying again`);
    timer = setTimeout(tick, 3 * POLL);
  } finally {
    asking = false;
  }
}

function login(why) {
  key = "";
  sessionStorage.removeItem(KEY);
  forget();
  $("page").hidden = true;
  $("leave").hidden = $("pause").hidden = true;
  $("login").hidden = false;
  $("login-error").textContent = why;
  say("wait", "locked");
  $("key").focus();
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  if (/[^\x21-\x7e]/.test(key)) return login("A key has no such characters.");
  $("key").value = "";
  sessionStorage.setItem(KEY, key);
  $("login-error").textContent = "";
  tick();
});
$("leave").addEventListener("click", () => {
  clearTimeout(timer);
  login("");
});
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  if (paused) say("wait", "paused");
  else tick();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) say("wait", "paused");
  else if ($("login").hidden) tick();
});

// ---- what came

/** A tier's name with its colour. */
function mark(tier) {
  return el("span", { class: `dot ${looks.get(tier) ?? "none"}` }, tier ?? "nowhere");
}

function total(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0);
}

function show(data) {
  if (seen.worker !== null && seen.worker !== data.worker.pid) {
    forget(); // another process answers, which has seen other requests
    seen.worker = data.worker.pid;
    return;
  }
  seen.worker = data.worker.pid;
  seen.since = Math.floor(data.now);
  for (const [at, counts] of data.seconds) seen.seconds.set(at, counts);
  for (const at of seen.seconds.keys()) if (at < data.now - SPANS.at(-1) - 10) seen.seconds.delete(at);
  $("login").hidden = true;
  $("page").hidden = false;
  $("leave").hidden = !key;
  $("pause").hidden = false;
  if (!paused) say("live", data.draining ? "live, draining" : "live");
  const tiers = data.tiers.map((tier, place) => ({ ...tier, look: `t${place % 4}` }));
  looks = new Map(tiers.map((tier) => [tier.name, tier.look]));
  showShares(data, tiers);
  showTimes(data);
  showReplicas(tiers);
  showLast(data.decisions);
  const many = data.worker.workers > 1;
  $("worker").textContent =
    `Process ${data.worker.pid}` +
    (many
      ? `, one of ${data.worker.workers} workers: shares, times and decisions are its own; ` +
        "pressure and in flight count all of them."
      : ".");
}

function showShares(data, tiers) {
  const names = tiers.map((tier) => tier.name);
  const known = new Set(names);
  const oldest = Math.min(data.now, ...seen.seconds.keys());
  const span = SPANS.find((each) => data.now - oldest < each) ?? SPANS.at(-1);
  const step = span / STEPS;
  const end = Math.floor(data.now / step + 1) * step;
  const columns = Array.from({ length: STEPS }, () => new Array(names.length + 1).fill(0));
  for (const [at, counts] of seen.seconds) {
    const place = STEPS - Math.ceil((end - at) / step);
    if (place < 0 || place >= STEPS) continue;
    for (const [tier, count] of Object.entries(counts)) {
      columns[place][known.has(tier) ? names.indexOf(tier) : names.length] += count;
    }
  }
  const sums = columns[0].map((_, part) => total(columns.map((column) => column[part])));
  const all = total(sums);
  const shares = names.map((name, i) => `${name} ${percent(all ? sums[i] / all : 0)}`);
  if (sums[names.length]) shares.push(`nowhere ${percent(sums[names.length] / all)}`);
  const colours = [...tiers.map((tier) => tier.look), "none"];
  $("span").textContent = `last ${WORDS[span]}`;
  $("ago").textContent = span === 60 ? "1 min ago" : `${span / 60} min ago`;
  const items = shares.map((told, part) => el("li", { class: `dot ${colours[part]}` }, told));
  $("legend").replaceChildren(...items);
  $("share").replaceChildren(stacked(columns, colours, `Share of each tier: ${shares.join(", ")}`));
  const most = Math.max(1, ...columns.map(total));
  $("peak").textContent = all ? `at most ${(most / step).toFixed(1)}` : "";
  $("rates").replaceChildren(stacked(columns, colours, "Requests a second", most));

  const largest = tiers[Math.max(0, data.rungs - 1)];
  const share = all ? sums[data.rungs - 1] / all : 0;
  const told = [`${percent(share)} of the requests went to `, el("em", {}, largest.name)];
  $("headline").replaceChildren(...(all ? told : ["No requests yet"]));
  $("about").textContent = all
    ? `${all.toLocaleString("en")} requests in the last ${WORDS[span]}; ${largest.name} is ${largest.model}`
    : `in the last ${WORDS[span]}`;
  const whole = Array.from({ length: 10 }, (_, ago) => Math.floor(data.now) - 1 - ago);
  const recent = whole.map((at) => total(Object.values(seen.seconds.get(at) ?? {})));
  $("rate").textContent = (total(recent) / 10).toFixed(1);
  const open = tiers.flatMap((tier) => tier.replicas.map((replica) => replica.in_flight));
  $("flight").textContent = total(open);
}

function showTimes(data) {
  const order = [...looks.keys()];
  const place = (row) => order.indexOf(row.tier);
  const rows = data.classes.sort((a, b) => place(a) - place(b) || b.answers - a.answers);
  const shown = rows.map((row) => {
    const times = [row.ttft?.p50, row.ttft?.p95, row.latency?.p50, row.latency?.p95].map(time);
    const numbers = [row.answers.toLocaleString("en"), ...times];
    return el("tr", {},
      el("td", {}, mark(row.tier)),
      el("td", {}, row.class.replaceAll("_", " ")),
      ...numbers.map((number) => el("td", { class: "n" }, number)),
    );
  });
  $("classes").replaceChildren(...shown);
  const first = rows.filter((row) => row.ttft).sort((a, b) => b.answers - a.answers)[0];
  $("first").textContent = first ? time(first.ttft.p50) : "–";
  $("whose").textContent = first ? ` of ${first.tier}` : "";
  $("first95").textContent = first ? `(p95 ${time(first.ttft.p95)})` : "";
  $("overhead").textContent = time(data.overhead?.p50);
  $("overhead95").textContent = data.overhead ? `(p95 ${time(data.overhead.p95)})` : "";
}

function showReplicas(tiers) {
  const now = new Set();
  for (const tier of tiers) {
    for (const replica of tier.replicas) {
      now.add(replica.name);
      if (!replicas.has(replica.name)) {
        const shown = card(tier, replica);
        replicas.set(replica.name, shown);
        $("replicas").append(shown.node);
      }
      refresh(replicas.get(replica.name), replica);
    }
  }
  for (const [name, shown] of replicas) {
    if (!now.has(name)) {
      shown.node.remove();
      replicas.delete(name);
    }
  }
}

function card(tier, replica) {
  const health = el("span", { class: "health" });
  const bar = meter(0);
  const plot = el("div", { class: "plot" });
  const numbers = [el("span"), el("span")];
  const title = el("b", { class: "dot", title: `${replica.name}: ${tier.model}` }, replica.name);
  const parts = [el("header", {}, title, health), bar, plot, el("footer", {}, ...numbers)];
  const node = el("article", { class: `replica ${tier.look}` }, ...parts);
  return { node, health, bar, plot, numbers, past: [] };
}

function refresh(shown, replica) {
  const down = replica.pressure === null;
  shown.node.classList.toggle("down", down);
  shown.node.classList.toggle("full", !down && replica.pressure >= 1);
  shown.health.textContent = down ? "down" : replica.pressure >= 1 ? "up, full" : "up";
  shown.bar.firstChild.style.width = `${100 * Math.min(1, replica.pressure ?? 0)}%`;
  shown.past = [...shown.past, replica.pressure ?? 0].slice(-STEPS);
  const label = `Pressure of ${replica.name} over the last minute`;
  shown.plot.replaceChildren(line(shown.past, Math.max(1, ...shown.past), label));
  shown.numbers[0].textContent = `pressure ${down ? "–" : replica.pressure.toFixed(2)}`;
  shown.numbers[1].textContent = `${replica.in_flight} in flight`;
}

function showLast(decisions) {
  const fresh = decisions.filter((each) => each.number > seen.newest);
  if (!fresh.length) return;
  const first = seen.newest === 0;
  seen.newest = fresh.at(-1).number;
  const rows = fresh.slice(-ROWS).reverse().map((each) => row(each, first));
  $("last").prepend(...rows);
  while ($("last").childElementCount > ROWS) $("last").lastElementChild.remove();
  $("none").hidden = true;
}

function row(each, first) {
  const why = el("td", { class: "why" }, each.why ?? "nothing could take it");
  const below = (node, told) => node.append(el("span", { class: "sub" }, told));
  if (each.failed.length) below(why, `after ${each.failed.join(", ")} failed`);
  const good = ["done", "abandoned"].includes(each.outcome);
  const where = el("td", {}, mark(each.tier));
  if (each.replica) below(where, each.replica);
  const status = each.status && each.status !== 200 ? ` ${each.status}` : "";
  const number = (label, told) => el("td", { class: "n", "data-label": label }, told);
  return el("tr", { class: first ? "" : "new", title: `request ${each.id}` },
    el("td", { class: "t" }, new Date(1000 * each.at).toLocaleTimeString("en-GB")),
    where,
    why,
    number("difficulty", each.difficulty?.toFixed(2) ?? "–"),
    number("first token", time(each.ttft)),
    number("whole", time(each.latency)),
    el("td", { class: good ? "o" : "o bad" }, each.outcome + status),
  );
}

// ---- try a prompt

$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("try").requestSubmit();
});
$("try").addEventListener("submit", async (event) => {
  event.preventDefault();
  const messages = [{ role: "user", content: $("prompt").value }];
  try {
    const answer = await ask("v1/tier/decision", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "auto", messages }),
    });
    if (answer.status === 401) return login("The router does not know this key any more.");
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error.message);
    $("verdict").replaceChildren(...verdict(told));
  } catch (error) {
    $("verdict").replaceChildren(el("p", { class: "bad" }, error.message));
  }
});

function verdict(told) {
  const parts = [
    el("p", { class: "to" }, mark(told.tier)),
    el("p", {}, told.why.replace(`${told.tier}: `, "")),
  ];
  const facts = [];
  if (told.difficulty !== null) {
    const line = told.threshold === null ? "" : `, the line is at ${told.threshold.toFixed(2)}`;
    facts.push(["difficulty", `${told.difficulty.toFixed(2)}${line}`]);
    parts.push(meter(told.difficulty, told.threshold));
  }
  if (told.intent) facts.push(["intent", told.intent]);
  facts.push(["reasons", told.reasons.join(", ")], ["replica", told.replica], ["model", told.model]);
  if (told.alternatives.length) facts.push(["could also", told.alternatives.join(", ")]);
  const pairs = facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  parts.push(el("dl", {}, ...pairs));
  return parts;
}

forget();
tick();
