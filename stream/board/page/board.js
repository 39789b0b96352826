"use strict";
// The page shows the latest frame and keeps nothing else: however long it is open, it holds
// one frame, and lists of fixed length. Every frame is whole.

const staleAfter = 3000; // ms: data older than this is grey
const silentAfter = 6000; // ms without a frame: the connection is dead, open another
const retryAfter = 1000;
const drift = 2e-4; // how much faster than the server's the page's clock may run
const listEvery = 600; // ms between two moves of the list, so that it can be read

const $ = (id) => document.getElementById(id);
const el = (tag, cls, parent) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (parent) parent.append(e);
  return e;
};
const put = (e, text) => { if (e.textContent !== text) e.textContent = text; };

const whole = new Intl.NumberFormat();
const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayClock = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const point = whole.formatToParts(1.5).find((p) => p.type === "decimal")?.value ?? ".";

// money is an amount of whole minor units, given as text: [whole part, minor part].
function money(text, decimals) {
  const negative = text.startsWith("-");
  const digits = (negative ? text.slice(1) : text).padStart(decimals + 1, "0");
  const cut = digits.length - decimals;
  const head = (negative ? "−" : "") + whole.format(BigInt(digits.slice(0, cut)));
  return [head, decimals ? point + digits.slice(cut) : ""];
}
const seconds = (ms) => (ms < 9950 ? (ms / 1000).toFixed(ms < 995 ? 2 : 1) : whole.format(Math.round(ms / 1000))) + " s";
function since(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return `${Math.floor(s / 3600)} h`;
}

// What the page knows.
let frame = null; // the latest
let received = 0; // when it came, by the page's clock
let offset = 0; // the page's clock minus the server's, less what frames took on the way
let fresh = true; // no frame has come over this connection, which may be to another server
let source = null;
let drawn = null;
let chart = null;
let listed = -Infinity;
let greatest = 0;

const now = () => performance.now();

function connect() {
  if (source) source.close();
  fresh = true;
  received = now();
  source = new EventSource(location.pathname.replace(/\/$/, "") + "/events");
  source.onmessage = (event) => {
    const passed = now() - received;
    received = now();
    frame = JSON.parse(event.data);
    offset = fresh ? received - frame.now : Math.min(offset + passed * drift, received - frame.now);
    fresh = false;
    requestAnimationFrame(draw);
  };
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, retryAfter);
  };
}

// age is how old what the frame says is, a frame that was held up on its way included.
const age = () => (frame && frame.as_of > 0 ? now() - offset - frame.as_of : Infinity);

// watch turns the page grey when what it shows is old, whatever the reason.
function watch() {
  if (now() - received > silentAfter) connect();
  const connected = source && source.readyState === EventSource.OPEN && now() - received < staleAfter;
  document.body.classList.toggle("cut", !connected);
  if (!frame) {
    return setState("connecting", connected ? "waiting for the board" : "no connection");
  }
  if (frame.state === "reading") {
    const read = frame.read ? ` · ${whole.format(frame.read)} records` : "";
    return setState(frame.note ? "stale" : "reading", frame.note || `reading history${read}`);
  }
  if (age() <= staleAfter) {
    return setState("live", `live · ${clock.format(frame.as_of)}`);
  }
  if (frame.as_of <= 0) {
    const stands = (frame.mirror || []).find((m) => m.state !== "copying");
    const waits = frame.count ? "not known yet how old this is" : "nothing has come yet";
    return setState("stale", frame.note || (stands ? `the mirror of ${stands.store}: ${stands.state}` : waits));
  }
  const why = frame.note || (connected ? "" : "no connection");
  setState("stale", `${why ? why + " · " : ""}standing still since ${clock.format(frame.as_of)} · ${since(age())}`);
}

function setState(state, text) {
  document.body.dataset.state = state;
  put($("state"), text);
}

function draw() {
  if (frame === drawn) return;
  drawn = frame;
  if (document.body.dataset.page && document.body.dataset.page !== frame.page) return location.reload();
  document.body.dataset.page = frame.page;
  named($("title"), frame.title);
  if (document.title !== frame.title) document.title = frame.title;
  watch();
  if (frame.state === "reading") return; // what is shown stays, grey
  drawTotal();
  drawCurve();
  drawShares();
  if (now() - listed >= listEvery) drawRecent();
  drawSources();
}

function sinceText() {
  switch (frame.since) {
    case "oldest": return "messages";
    case "hour": return "messages since " + clock.format(frame.from).slice(0, 5);
    case "day": return "messages today";
  }
  return "messages since " + dayClock.format(frame.from);
}

function drawTotal() {
  const total = $("total");
  const count = whole.format(frame.count);
  const [head, minor] = frame.money ? money(frame.amount, frame.decimals) : [count, ""];
  total.value = frame.money ? frame.amount : String(frame.count);
  total.dataset.count = frame.count;
  if (!total.firstElementChild) {
    total.textContent = "";
    el("span", "", total);
    el("span", "minor", total);
  }
  put(total.children[0], head);
  put(total.children[1], minor);
  // Wider only: the number does not pump when it loses a digit of its width.
  const chars = Math.max(3, head.length + minor.length / 2 + (frame.unit ? 1 + frame.unit.length / 3 : 0));
  if (chars > greatest || chars < greatest - 3) {
    greatest = chars;
    total.style.setProperty("--chars", chars);
  }
  put($("unit"), frame.unit || "");
  put($("since"), sinceText());
  put($("count"), count);
  put($("rate"), frame.rate < 10 ? frame.rate.toFixed(1) : whole.format(Math.round(frame.rate)));
  put($("delay"), frame.delay < 0 ? "–" : seconds(frame.delay + now() - received));
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function makeChart(box) {
  const font = `${Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.78)}px ${getComputedStyle(document.body).fontFamily}`;
  const small = parseFloat(getComputedStyle(document.documentElement).fontSize);
  // A time so near to a side that it would be cut, or stand in the other axis, is left out.
  const within = (u, t) => Math.min(u.valToPos(t, "x"), u.over.clientWidth - u.valToPos(t, "x")) > small * 1.8;
  const axis = { stroke: () => color("--soft"), font, ticks: { show: false } };
  return new uPlot({
    width: box.clientWidth, height: box.clientHeight, legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    padding: [small * 0.4, 1, 0, 0],
    scales: { x: { time: true }, y: { range: (u, low, high) => [0, Math.max(1, high * 1.12)] } },
    axes: [
      { ...axis, grid: { show: false }, size: small * 1.8, space: box.clientWidth < 500 ? small * 3.4 : small * 5, values: (u, ts) => ts.map((t) => within(u, t) ? clock.format(t * 1000).slice(0, t % 60 ? 8 : 5) : "") },
      { ...axis, grid: { stroke: () => color("--line"), width: 1 }, size: small * 3.2, space: small * 3.4, values: (u, vs) => vs.map((v) => whole.format(v)) },
    ],
    series: [{}, {
      stroke: () => color("--blue"), fill: () => color("--fill"), width: 1.5, points: { show: false },
      paths: uPlot.paths.spline ? uPlot.paths.spline() : undefined,
    }],
  }, [[], []], box);
}

function drawCurve() {
  const box = $("curve");
  if (!chart) {
    chart = makeChart(box);
    new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height: box.clientHeight })).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  }
  const { from, step, counts } = frame.curve;
  const key = `${from}:${counts.at(-1)}:${counts.at(-2)}`;
  if (chart.last === key) return;
  chart.last = key;
  chart.setData([counts.map((_, i) => from + i * step), counts.map((n) => n / step)]);
}

const measure = (e) => (frame.money ? BigInt(e.amount) : BigInt(e.count));
const figure = (e) => (frame.money ? money(e.amount, frame.decimals).join("") : whole.format(e.count));
const size = (n) => (n < 0n ? -n : n);
// part is a share of a whole in permille, exact for numbers of any size.
const part = (n, all) => (all !== 0n ? Number((size(n) * 1000n) / size(all)) : 0);
// named puts text that somebody else has written, in whatever script.
const named = (e, text) => { e.dir = "auto"; put(e, text); };

// panel finds or makes a panel by its place, with as many rows as are needed.
function panel(key, cls, title) {
  let p = document.querySelector(`[data-panel="${key}"]`);
  if (!p) {
    p = el("section", "panel " + cls, cls === "bars" ? $("bars") : $("panels"));
    p.dataset.panel = key;
    el("h2", "", p);
    el("div", "rows", p);
    el("p", "note", p);
  }
  put(p.children[0], title);
  return p;
}

function rows(box, n, make) {
  while (box.childElementCount > n) box.lastElementChild.remove();
  while (box.childElementCount < n) box.append(make());
  return box.children;
}

function drawShares() {
  (frame.bars || []).forEach((s, i) => drawList("bars" + i, "bars", s));
  (frame.top || []).forEach((s, i) => drawList("top" + i, "top", s));
}

function drawList(key, cls, shares) {
  const p = panel(key, cls, shares.label);
  const top = cls === "top";
  const list = shares.entries.map((e) => ({ ...e, name: e.value || "(none)" }));
  const other = shares.other_values > 0 || shares.bounded;
  const least = shares.bounded ? "≥ " : "";
  if (other) {
    const n = whole.format(shares.other_values);
    list.push({ ...shares.other, other: true, name: shares.bounded ? `other, more than ${n} values` : `other, ${n} ${shares.other_values === 1 ? "value" : "values"}` });
  }
  const sizes = list.map(measure);
  const largest = sizes.reduce((m, n) => (size(n) > m ? size(n) : m), 0n);
  const total = sizes.reduce((sum, n) => sum + n, 0n);
  // Of a whole that has parts on both sides of zero nothing is a share.
  const shared = !(sizes.some((n) => n > 0n) && sizes.some((n) => n < 0n));
  const lines = rows(p.children[1], list.length, () => {
    const r = el("div", "row");
    if (top) el("span", "place", r); else el("span", "share", r);
    el("span", "name", r);
    el("span", "number", r);
    if (top) el("span", "percent", r);
    return r;
  });
  list.forEach((e, i) => {
    const r = lines[i];
    r.classList.toggle("other", Boolean(e.other));
    r.classList.toggle("below", sizes[i] < 0n);
    if (top) put(r.children[0], e.other ? "" : String(i + 1));
    else r.children[0].style.width = part(sizes[i], largest) / 10 + "%";
    named(r.children[1], e.name);
    r.children[1].title = e.name;
    put(r.children[2], (e.other ? "" : least) + figure(e));
    if (top) put(r.children[3], shared ? (part(sizes[i], total) / 10).toFixed(1) + " %" : "–");
  });
  put(p.children[2], shares.bounded ? "Too many values to tell all apart: small ones are in other." : "");
}

function drawRecent() {
  listed = now();
  if (!frame.columns) return;
  const p = panel("recent", "recent", "Latest");
  const head = ["Time", ...frame.columns];
  if (frame.money) head.push("Amount");
  const cls = (i) => (i === 0 ? "time" : frame.money && i === head.length - 1 ? "figure" : "text");
  let table = p.querySelector("table");
  if (!table) {
    table = el("table", "", p.children[1]);
    table.style.setProperty("--texts", frame.columns.length);
    const tr = el("tr", "", el("thead", "", table));
    head.forEach((name, i) => put(el("th", cls(i), tr), name));
    el("tbody", "", table);
  }
  const list = frame.recent || [];
  const lines = rows(table.tBodies[0], list.length, () => {
    const tr = el("tr", "");
    head.forEach((_, i) => el("td", cls(i), tr));
    return tr;
  });
  list.forEach((m, i) => {
    const cells = [clock.format(m.at), ...m.cells];
    if (frame.money) cells.push(m.amount === undefined ? "?" : money(m.amount, frame.decimals).join(""));
    cells.forEach((text, j) => (cls(j) === "text" ? named : put)(lines[i].children[j], text));
  });
}

function drawSources() {
  const list = [];
  for (const m of frame.mirror || []) {
    const lag = m.as_of ? Math.max(0, frame.now - m.as_of) : Infinity;
    const bad = m.state !== "copying" || lag > 5000;
    const store = frame.mirror.length > 1 ? ` of ${m.store}` : "";
    list.push({ bad, text: bad ? `mirror${store}: ${m.state}${m.as_of ? ", " + since(lag) + " behind" : ""}` : `mirror${store} ${seconds(lag)} behind` });
  }
  for (const g of frame.groups || []) {
    const n = `${whole.format(g.waiting)}${g.more ? "+" : ""}`;
    const how = g.old ? " (no answer):" : g.down ? " is down:" : "";
    list.push({ bad: g.down || g.old, text: `${g.group}${how} ${n} waiting, ${whole.format(g.in_flight)} in flight` });
  }
  for (const who of frame.silent || []) list.push({ bad: true, text: who });
  if (frame.no_amount) list.push({ bad: true, text: `${whole.format(frame.no_amount)} without a readable amount` });
  if (frame.no_answer) list.push({ bad: false, text: `${whole.format(frame.no_answer)} not counted: the filter failed` });
  const lines = rows($("sources"), list.length, () => el("li", ""));
  list.forEach((s, i) => {
    lines[i].classList.toggle("bad", Boolean(s.bad));
    put(lines[i], s.text);
  });
}

async function check() {
  const button = $("check"), verdict = $("truth-verdict");
  button.disabled = true;
  put(button, "Reading the log again…");
  $("truth-table").replaceChildren();
  put($("truth-note"), "");
  verdict.className = "";
  try {
    const answer = await fetch(location.pathname.replace(/\/$/, "") + "/truth", { method: "POST" });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    showTruth(await answer.json());
  } catch (e) {
    verdict.className = "bad";
    put(verdict, e.message);
  }
  button.disabled = false;
  put(button, "Check against the log");
  if (!$("truth").open) $("truth").showModal();
}

function showTruth(t) {
  const verdict = $("truth-verdict");
  verdict.className = t.equal ? "good" : "bad";
  put(verdict, t.equal ? "Equal to the last digit" : "They differ");
  const line = (name, text) => {
    const tr = el("tr", "", $("truth-table"));
    put(el("td", "", tr), name);
    put(el("td", "", tr), text);
  };
  const amount = (a) => money(a, frame.decimals).join("") + (frame.unit ? " " + frame.unit : "");
  line("messages, this board", whole.format(t.board.count));
  line("messages, the log", whole.format(t.log.count));
  if (frame.money) {
    line("amount, this board", amount(t.board.amount));
    line("amount, the log", amount(t.log.amount));
    line("difference", amount(String(BigInt(t.board.amount) - BigInt(t.log.amount))));
  }
  const offsets = Object.entries(t.offsets).map(([p, o]) => `${p}:${o}`).join(" ");
  put($("truth-note"), `${whole.format(t.records)} records read again in ${t.seconds.toFixed(1)} s, up to the offsets ${offsets}`);
}

$("check").addEventListener("click", check);
setInterval(watch, 250);
connect();
