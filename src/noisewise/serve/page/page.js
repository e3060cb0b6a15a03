"use strict";
// No library, and nothing from elsewhere. Text only ever becomes text: ids may hold anything.
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const COVERAGE = 0.9;
let model = null, filled = null;

function make(name, text, attributes = {}) {
  const node = document.createElement(name);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function draw(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function say(problem) {
  at("problem").hidden = !problem;
  at("problem").textContent = problem || "";
}

async function ask(path, asked) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers };
  if (asked !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(asked);
    headers["Content-Type"] = "application/json";
  }
  const answer = await fetch(path, options);
  if (answer.status === 401) {
    at("token-form").hidden = false;
    throw new Error(token ? "That is not the token." : "A token is needed.");
  }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// Run something that may fail; what is wrong is said, and buttons rest until it is done.
async function attempt(form, work) {
  const buttons = form.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  say("");
  try {
    await work();
  } catch (error) {
    say(error.message);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

const short = (number) => (number === null ? "–" : String(Number(Number(number).toPrecision(3))));

function table(head, rows, caption) {
  const wide = make("div", null, { class: "wide" }), whole = make("table"), body = make("tbody");
  if (caption) whole.append(make("caption", caption, { class: "soft" }));
  const first = make("tr");
  head.forEach((name, k) => {
    const isDrawn = rows.length && rows[0][k] instanceof SVGElement;
    first.append(make("th", name, { scope: "col", class: isDrawn ? "middle" : "" }));
  });
  const top = make("thead");
  top.append(first);
  rows.forEach((cells) => {
    const row = make("tr");
    cells.forEach((cell) => {
      const place = make("td");
      if (cell instanceof Node) {
        if (cell instanceof SVGElement) place.className = "bar";
        place.append(cell);
      } else {
        place.textContent = cell;
        if (String(cell).length > 40) place.className = "words";
      }
      row.append(place);
    });
    body.append(row);
  });
  whole.append(top, body);
  wide.append(whole);
  return wide;
}

// An error bar: a line from low to high, and a dot at the mean.
function bar(item, low, high) {
  const x = (value) => 6 + (188 * (value - low)) / (high - low || 1);
  const words = `${short(item.mean)}, from ${short(item.low)} to ${short(item.high)}`;
  const svg = draw("svg", { viewBox: "0 0 200 20", role: "img", "aria-label": words });
  svg.append(draw("line", { x1: 0, x2: 200, y1: 10, y2: 10, class: "axis" }));
  svg.append(draw("line", { x1: x(item.low), x2: x(item.high), y1: 10, y2: 10, class: "reach" }));
  for (const end of [item.low, item.high]) {
    svg.append(draw("line", { x1: x(end), x2: x(end), y1: 5, y2: 15, class: "reach" }));
  }
  svg.append(draw("circle", { cx: x(item.mean), cy: 10, r: 4.5, class: "dot" }));
  return svg;
}

function showList(title, items, user) {
  const list = at("list");
  list.replaceChildren(make("h3", title));
  at("why").replaceChildren();
  if (!items.length) return list.append(make("p", "There is nothing left to recommend."));
  const span = model.value_range || [
    Math.min(...items.map((item) => item.low)), Math.max(...items.map((item) => item.high)),
  ];
  const canExplain = user !== undefined && model.endpoints.includes("explain");
  const rows = items.map((item) => {
    const row = [String(item.id), bar(item, ...span), `± ${short(item.std)}`, short(item.mean)];
    if (canExplain) {
      const button = make("button", "why?", { type: "button", class: "plain" });
      button.addEventListener("click", () => attempt(list, () => showWhy(user, item.id)));
      row.push(button);
    }
    return row;
  });
  const head = [model.modes[1].name, `${short(span[0])} to ${short(span[1])}`, "std", "expected"];
  list.append(table(canExplain ? [...head, ""] : head, rows));
}

async function showWhy(user, item) {
  const found = await ask("v1/explain", { user, item, n: 10 });
  const most = Math.max(...found.pulls.map((pull) => Math.abs(pull.pull)), 1e-9);
  const rows = found.pulls.map((pull) => {
    const wide = (96 * Math.abs(pull.pull)) / most, up = pull.pull > 0;
    const svg = draw("svg", { viewBox: "0 0 200 16", role: "img", "aria-label": short(pull.pull) });
    svg.append(draw("line", { x1: 100, x2: 100, y1: 0, y2: 16, class: "axis" }));
    const place = { x: up ? 100 : 100 - wide, y: 3, width: wide, height: 10 };
    svg.append(draw("rect", { ...place, class: up ? "up" : "down" }));
    const sign = up ? "+" : "";
    return [`${pull.id} (${short(pull.value)})`, svg, `${sign}${short(pull.pull)}`, `${Math.round(100 * pull.sure)} %`];
  });
  const why = at("why");
  why.replaceChildren(make("h3", `Why ${item}`));
  why.append(make("p", `The average would be ${short(found.average)}; with these it is ${short(found.mean)} ± ${short(found.std)}.`));
  why.append(table(["their own", "pulls down, or up", "by", "sure"], rows));
  why.scrollIntoView({ block: "nearest" });
}

async function recommend() {
  const user = at("user").value, n = Number(at("many").value);
  const found = await ask("v1/recommend", { ids: [user], n, coverage: COVERAGE });
  const [list] = found.lists;
  const known = list.known ? "" : ", who is not known: what is best on average";
  showList(`For ${user}${known}`, list.items, list.known ? user : undefined);
}

function addTaste() {
  const line = make("div", null, { class: "taste" });
  const span = model.value_range || [null, null];
  line.append(make("input", null, { list: "items", placeholder: model.modes[1].name, "aria-label": model.modes[1].name }));
  const value = make("input", null, { type: "number", step: "any", "aria-label": "value" });
  if (span[0] !== null) {
    value.min = span[0];
    value.max = span[1];
    value.placeholder = `${short(span[0])}–${short(span[1])}`;
  }
  line.append(value);
  at("tastes").append(line);
}

async function recommendToNew() {
  const others = [], values = [];
  for (const line of at("tastes").children) {
    const [item, value] = line.querySelectorAll("input");
    if (item.value && value.value !== "") {
      others.push(item.value);
      values.push(Number(value.value));
    }
  }
  if (!others.length) throw new Error("Say what they think of one thing at least.");
  const found = await ask("v1/fold_in", { others, values, n: Number(at("many").value), coverage: COVERAGE });
  showList(`For somebody who knows ${others.length}`, found.items);
}

async function complete(input, options, mode) {
  const query = new URLSearchParams({ mode, like: input.value, n: 20 });
  const found = await ask(`v1/ids?${query}`);
  options.replaceChildren(...found.ids.map((id) => make("option", null, { value: id })));
}

// Charts of series: readings, what was filled in with its band, and what is odd.
function path(points) {
  let text = "", down = false;
  for (const point of points) {
    if (point === null) down = false;
    else {
      text += `${down ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
      down = true;
    }
  }
  return text;
}

function chart(name, when, values, holes, band, odd) {
  const wide = Math.max(280, Math.min(720, at("charts").clientWidth)), high = 150, n = values.length;
  const ends = values.concat(band.low, band.high).filter((value) => value !== null);
  const low = Math.min(...ends), top = Math.max(...ends);
  const [start, end] = [when[0], when[n - 1]];
  const x = (row) => 4 + ((wide - 8) * (when[row] - start)) / (end - start || 1);
  const y = (value) => high - 6 - ((high - 18) * (value - low)) / (top - low || 1);
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${name}: ${holes.length} gaps filled` });
  odd.forEach(([from, to]) => {
    const left = 4 + ((wide - 8) * (from - start)) / (end - start || 1);
    const right = 4 + ((wide - 8) * (to - start)) / (end - start || 1);
    svg.append(draw("rect", { x: left - 2, y: 0, width: Math.max(right - left, 0) + 4, height: high, class: "strange" }));
  });
  const isHole = new Set(holes);
  let run = [];
  const close = () => {
    if (!run.length) return;
    const place = (k, edge) => `${x(holes[k]).toFixed(1)} ${y(band[edge][k]).toFixed(1)}`;
    const known = run.filter((k) => band.low[k] !== null);
    if (known.length) {
      const up = known.map((k) => place(k, "high")), back = known.map((k) => place(k, "low")).reverse();
      svg.append(draw("path", { d: `M${up.concat(back).join("L")}Z`, class: "band" }));
    }
    const first = holes[run[0]], last = holes[run[run.length - 1]], points = [];
    for (let row = Math.max(first - 1, 0); row <= Math.min(last + 1, n - 1); row += 1) {
      points.push(values[row] === null ? null : [x(row), y(values[row])]);
    }
    svg.append(draw("path", { d: path(points), class: "guess" }));
    run = [];
  };
  holes.forEach((row, k) => {
    if (run.length && holes[run[run.length - 1]] !== row - 1) close();
    run.push(k);
  });
  close();
  const read = values.map((value, row) => (value === null || isHole.has(row) ? null : [x(row), y(value)]));
  svg.append(draw("path", { d: path(read), class: "read" }));
  svg.append(draw("text", { x: 4, y: 11 }, short(top)), draw("text", { x: 4, y: high - 1 }, short(low)));
  const figure = make("div");
  figure.append(make("h3", name), svg);
  return figure;
}

const moment = (entry) => (typeof entry === "number" ? entry : Date.parse(entry));

async function fill(file) {
  const csv = await file.text();
  at("filled-told").textContent = "Filling …";
  at("charts").replaceChildren();
  at("odd").replaceChildren();
  at("download").hidden = true;
  try {
    filled = await ask("v1/impute", { csv, coverage: Number(at("coverage").value) });
  } catch (error) {
    at("filled-told").textContent = "";
    throw error;
  }
  const many = Object.values(filled.holes).reduce((sum, rows) => sum + rows.length, 0);
  at("filled-told").textContent = `${many} gaps were filled in ${Object.keys(filled.holes).length} series.`;
  at("download").hidden = false;
  let odd = { columns: { words: [] } };
  if (model.endpoints.includes("anomalies")) odd = await ask("v1/anomalies", { csv });
  showOdd(odd.columns);
  seriesOf(filled).slice(0, 30).forEach((one) => {
    at("charts").append(chart(one.name, one.when, one.values, one.holes, one.band, spans(odd.columns, one)));
  });
}

// A wide table has a series in each column; rows of a long one say whose they are.
function seriesOf(answer) {
  const { columns } = answer, names = Object.keys(columns);
  const isNumber = (name) => columns[name].some((entry) => typeof entry === "number");
  const isTime = (name) => columns[name].every((entry) => typeof entry === "string" && !Number.isNaN(Date.parse(entry)));
  const time = names.find((name) => !isNumber(name) && isTime(name)) || names.find((name) => /^(time|date|when|hour|stamp)/i.test(name));
  const ids = names.filter((name) => name !== time && !isNumber(name) && columns[name].some((entry) => entry !== null));
  const groups = new Map();
  columns[names[0]].forEach((_, row) => {
    const key = ids.map((name) => columns[name][row]).join(" ");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  });
  const found = [];
  names.filter((name) => name !== time && isNumber(name)).forEach((name) => {
    const place = new Map((answer.holes[name] || []).map((row, k) => [row, k]));
    groups.forEach((rows, key) => {
      const holes = rows.map((row, k) => k).filter((k) => place.has(rows[k]));
      const ends = (what) => holes.map((k) => answer[what][name][place.get(rows[k])]);
      found.push({
        name: ids.length ? `${key} ${name}` : name, words: [...key.split(" "), name],
        when: rows.map((row, k) => (time ? moment(columns[time][row]) : k)),
        values: rows.map((row) => columns[name][row]), holes,
        band: holes.length ? { low: ends("low"), high: ends("high") } : { low: [], high: [] },
      });
    });
  });
  return found;
}

function spans(columns, one) {
  const found = [];
  (columns.words || []).forEach((_, row) => {
    const known = Object.values(columns).some((column) => one.words.includes(String(column[row])));
    if (known) found.push([moment(columns.start[row]), moment(columns.end[row])]);
  });
  return found.filter(([from]) => !Number.isNaN(from));
}

function showOdd(columns) {
  if (!model.endpoints.includes("anomalies")) return;
  const rows = columns.words.map((words, row) => [columns.kind[row], words]);
  at("odd").append(make("h3", "What is odd"));
  at("odd").append(rows.length ? table(["kind", "what"], rows) : make("p", "Nothing."));
}

function quoted(entry) {
  const text = entry === null ? "" : String(entry);
  // A sheet would take some texts for a formula.
  const safe = typeof entry === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function download() {
  const columns = { ...filled.columns };
  for (const [name, rows] of Object.entries(filled.holes)) {
    for (const what of ["std", "low", "high"]) {
      const column = new Array(filled.columns[name].length).fill(null);
      rows.forEach((row, k) => { column[row] = filled[what][name][k]; });
      columns[`${name}_${what}`] = column;
    }
  }
  const names = Object.keys(columns), lines = [names.map(quoted).join(",")];
  for (let row = 0; row < columns[names[0]].length; row += 1) {
    lines.push(names.map((name) => quoted(columns[name][row])).join(","));
  }
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
  link.download = "filled.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}

async function showNoise() {
  const asked = { n: 20, fewest: Number(at("fewest").value) };
  if (model.kind === "ratings") asked.mode = Number(at("noise-mode").value);
  const { columns } = await ask("v1/noise", asked);
  const isOfIds = "noise_std" in columns;
  const key = isOfIds ? "noise_std" : "noise";
  const most = Math.max(...columns[key], 1e-9);
  const names = Object.keys(columns).filter((name) => typeof columns[name][0] !== "number" || name === "id");
  const rows = columns[key].map((noise, row) => {
    const svg = draw("svg", { viewBox: "0 0 200 16", role: "img", "aria-label": short(noise) });
    svg.append(draw("rect", { x: 0, y: 3, width: Math.max((196 * noise) / most, 1), height: 10, class: "up" }));
    const who = names.map((name) => columns[name][row]).join(" ");
    return [who, svg, short(noise), String(columns.observations[row])];
  });
  const what = isOfIds ? "std of the noise" : "beyond the others";
  at("noisy").replaceChildren(rows.length ? table(["who", "", what, "seen"], rows) : make("p", "Nobody."));
}

async function start() {
  model = await ask("v1/model");
  at("token-form").hidden = true;
  const modes = model.modes.map((mode) => `${mode.name}: ${mode.ids.toLocaleString("en")}`).join(", ");
  at("about").textContent = `${model.name} (${modes}); version ${model.model}, loaded ${model.loaded.replace("T", " ").slice(0, 16)} UTC.`;
  const can = (name) => model.endpoints.includes(name);
  at("for-ratings").hidden = !can("recommend");
  at("for-sensors").hidden = !can("impute");
  at("for-noise").hidden = !can("noise");
  if (can("recommend")) {
    document.querySelector(".first-mode").textContent = model.modes[0].name;
    document.querySelector(".second-mode").textContent = model.modes[1].name;
    for (let k = 0; k < 3; k += 1) addTaste();
    await complete(at("user"), at("users"), 0);
  }
  const ranks = model.kind === "ratings" ? model.modes : [];
  at("noise-mode-label").hidden = !ranks.length;
  at("noise-mode").replaceChildren(...ranks.map((mode, k) => make("option", mode.name, { value: k })));
}

function on(form, work) {
  at(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(at(form), work);
  });
}

function later(work) {
  let timer = 0;
  return (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => attempt(document.createElement("form"), () => work(event)), 150);
  };
}

on("known", recommend);
on("made-up", recommendToNew);
on("noise-form", showNoise);
on("token-form", () => {
  sessionStorage.setItem("token", at("token").value);
  return start();
});
at("more").addEventListener("click", addTaste);
at("download").addEventListener("click", download);
at("user").addEventListener("input", later(() => complete(at("user"), at("users"), 0)));
at("tastes").addEventListener("input", later((event) => (
  event.target.list ? complete(event.target, at("items"), 1) : undefined
)));
at("file").addEventListener("change", () => {
  if (at("file").files.length) attempt(at("table-form"), () => fill(at("file").files[0]));
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  at("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", kind === "dragover");
    const files = kind === "drop" ? event.dataTransfer.files : [];
    if (files.length) attempt(at("table-form"), () => fill(files[0]));
  });
}
attempt(document.createElement("form"), start);
